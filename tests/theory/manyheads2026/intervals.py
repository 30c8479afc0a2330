"""The local bounds of docs/theory/forecast.md in interval arithmetic: a second program, with plain loops, for tokens in a plane.

In dimension two, and for two sequences, every eigenvalue has a formula, so that each value below encloses what the bound is in exact
arithmetic.
"""

import itertools

from mpmath import iv

iv.prec = 600  # a loss of 1e-80 has digits left when it is subtracted from one


def least(values):
    values = list(values)
    low, high = values[0].a, values[0].b
    for v in values[1:]:
        low = v.a if v.a < low else low
        high = v.b if v.b < high else high
    return iv.mpf([low, high])


def largest(values):
    return -least(-v for v in values)


def root(value):
    """Of something that is not negative, whatever the interval says."""
    return iv.sqrt(largest([value, iv.mpf(0)]))


def top(a, b, c):
    """The larger eigenvalue of the matrix with rows (a, b) and (b, c)."""
    return (a + c) / 2 + root(((a - c) / 2) ** 2 + b**2)


def block(B, C):
    return (C + root(C**2 + 4 * B**2)) / 2


def dot(x, y):
    return sum((p * q for p, q in zip(x, y, strict=True)), iv.mpf(0))


def points(array):
    return [[iv.mpf(float(x)) for x in row] for row in array]


class Query:
    """One query of one sequence under one class of heads."""

    def __init__(self, X, t, W, U):
        self.x, self.tokens = X[t], X
        w = [dot([W[i][j] for i in range(2)], self.x) for j in range(2)]
        weights = [iv.exp(dot(w, key)) for key in X]
        self.A = [weight / sum(weights, iv.mpf(0)) for weight in weights]
        self.mean = [dot(self.A, [key[j] for key in X]) for j in range(2)]
        away = [[key[j] - self.mean[j] for j in range(2)] for key in X]
        self.variance = top(
            *(dot(self.A, [a[i] * a[j] for a in away]) for i, j in ((0, 0), (0, 1), (1, 1)))
        )
        self.radius = largest(root(dot(a, a)) for a in away)
        pairs = itertools.combinations(X, 2)
        self.diameter = largest(
            root(dot(d, d)) for d in ([p[j] - q[j] for j in range(2)] for p, q in pairs)
        )
        self.xi = [dot(key, U[t]) for key in X]
        self.length = root(dot(self.x, self.x))

    def center(self, values):
        mean = dot(self.A, values)
        return mean, [v - mean for v in values]

    def deviation(self, values):
        away = self.center(values)[1]
        return root(dot(self.A, [a**2 for a in away]))

    def oscillation(self, values):
        return largest(values) - least(values)

    def against_tokens(self, values):
        """The covariance with the tokens."""
        away = self.center(values)[1]
        return [
            dot(self.A, [a * key[j] for a, key in zip(away, self.tokens, strict=True)])
            for j in range(2)
        ]

    def tilted(self, step):
        lam, r, D = self.variance, self.radius, self.diameter
        grown = least([lam * iv.exp(step * D), D**2 / 4])
        for _ in range(3):
            far = least([D, r + step * grown])
            grown = least([lam * iv.exp(step * root(far**2 - lam)), D**2 / 4])
        v = least([grown, far**2 / 2])
        return grown, far, iv.exp(step * far), root(v * (far**2 - v))


class Ball:
    """The bounds over a ball of a given radius around a model with two sequences; `v` is a direction in class coordinates."""

    def __init__(self, X, y, W, U, N, radius, v=None):
        self.y, self.N, self.rho = (
            [iv.mpf(float(label)) for label in y],
            [iv.mpf(float(n)) for n in N],
            iv.mpf(radius),
        )
        self.scale = 1 / iv.sqrt(sum(self.N, iv.mpf(0)))
        U, W = [points(u) for u in U], [points(w) for w in W]
        self.rows = [
            [[Query(points(x), t, w, u) for t in range(len(x))] for w, u in zip(W, U, strict=True)]
            for x in X
        ]
        self.v = None if v is None else [(points(a), points(b)) for a, b in zip(*v, strict=True)]

    def largest(self, queries, weights):
        """The largest eigenvalue of the weighted sum of squares of the queries."""
        pairs = ((0, 0), (0, 1), (1, 1))
        return top(*(dot(weights, [q.x[i] * q.x[j] for q in queries]) for i, j in pairs))

    def drift(self, i):
        """Bounds on the norm of the Hessian of a score, and on how far its gradient moves."""
        bends, moves = [], []
        for queries, N in zip(self.rows[i], self.N, strict=True):
            b = self.rho / iv.sqrt(N)
            tilts = [q.tilted(b * q.length) for q in queries]
            each = list(zip(queries, tilts, strict=True))
            sds = [
                least([iv.sqrt(e) * q.deviation(q.xi), q.oscillation(q.xi) / 2])
                for q, (_, _, e, _) in each
            ]
            k = [least([root(lam) * s, lam * q.diameter]) for q, (lam, _, _, s) in each]
            B = root(self.largest(queries, [lam**2 for lam, *_ in tilts]))
            third = [
                least([sd * t[3], q.oscillation(q.xi) * t[0]])
                for sd, (q, t) in zip(sds, each, strict=True)
            ]
            C = self.largest(queries, third)
            E = root(
                largest(kk * q.length**2 for kk, q in zip(k, queries, strict=True))
                * self.largest(queries, k)
            )
            bends.append(block(B, C + b * E))
            moves.append(block(B, C))
        return self.scale * largest(bends), self.rho * self.scale * largest(moves)

    def features(self, i):
        """The gradient of the margin in class coordinates, as one list."""
        entries = []
        for queries, N in zip(self.rows[i], self.N, strict=True):
            sigma = self.y[i] * iv.sqrt(N) * self.scale
            to = [q.against_tokens(q.xi) for q in queries]
            pairs = itertools.product(range(2), range(2))
            entries += [
                sigma * dot([q.x[a] for q in queries], [c[b] for c in to]) for a, b in pairs
            ]
            entries += [sigma * q.mean[j] for q in queries for j in range(2)]
        return entries

    def score(self, i):
        each = zip(self.rows[i], self.N, strict=True)
        return self.y[i] * sum(
            (N * self.scale * dot(q.A, q.xi) for queries, N in each for q in queries), iv.mpf(0)
        )

    def margin(self, i):
        """The lower bound on the slope of the margin along the direction."""
        center, square, rest = iv.mpf(0), iv.mpf(0), []
        for queries, N, (vW, vU) in zip(self.rows[i], self.N, self.v, strict=True):
            sigma, weights, mixed, to_W, to_U = iv.sqrt(N) * self.scale, [], [], [], []
            for q, u in zip(queries, vU, strict=True):
                lam, far, factor, s = q.tilted(self.rho / iv.sqrt(N) * q.length)
                f = [self.y[i] * dot(key, u) for key in q.tokens]
                along = [dot(q.x, [vW[a][j] for a in range(2)]) for j in range(2)]
                d = [self.y[i] * dot(along, key) for key in q.tokens]
                mean, _ = q.center(f)
                product = [a * b for a, b in zip(q.center(q.xi)[1], q.center(d)[1], strict=True)]
                both, product0 = q.center(product)
                center += sigma * (mean + both)
                to_W.append(
                    [
                        a + b
                        for a, b in zip(
                            q.against_tokens(f), q.against_tokens(product0), strict=True
                        )
                    ]
                )
                to_U.append(q.against_tokens(d))
                sd = {
                    name: least([iv.sqrt(factor) * q.deviation(values), q.oscillation(values) / 2])
                    for name, values in (("f", f), ("d", d), ("x", q.xi))
                }
                osc_f, osc_d, osc_x = (q.oscillation(values) for values in (f, d, q.xi))
                third = least([sd["f"] * s, osc_f * lam, factor * (mean - least(f)) * lam])
                fourth = least([osc_x * sd["d"], osc_d * sd["x"]]) * s + 2 * sd["x"] * sd["d"] * lam
                weights.append(third + fourth)
                mixed.append(least([osc_d * lam, far * sd["d"] * root(lam)]) ** 2)
            for a, b in itertools.product(range(2), range(2)):
                square += (self.scale * dot([q.x[a] for q in queries], [c[b] for c in to_W])) ** 2
            square += sum((self.scale**2 * dot(c, c) for c in to_U), iv.mpf(0))
            second = block(root(self.largest(queries, mixed)), self.largest(queries, weights))
            rest.append(second / iv.sqrt(N))
        return center - self.rho * root(square) - self.rho**2 / 2 * self.scale * largest(rest)

    def box(self, i):
        """Between which values a margin stays."""
        found = self.features(i)
        width = self.rho * root(dot(found, found)) + self.rho**2 / 2 * self.drift(i)[0]
        return self.score(i) - width, self.score(i) + width

    def ratio(self, level, ratios):
        """The lower bound on mean slope over mean loss."""
        boxes = [self.box(i) for i in range(2)]
        bounds = [least((1 - iv.exp(-loss(low))) / loss(low) for low, _ in boxes)]
        for mu in map(iv.mpf, ratios):
            rest = (
                sum((least(slope(m) - mu * loss(m) for m in box) for box in boxes), iv.mpf(0)) / 2
            )
            if rest.a > 0:
                bounds.append(mu + rest / iv.mpf(level))
        return largest(bounds)

    def smoothness(self, level):
        """The upper bound on the Hessian of the loss, for two sequences."""
        boxes = [self.box(i) for i in range(2)]
        nearest = [largest([low, least([high, iv.mpf(0)])]) for low, high in boxes]
        bend = [slope(m) * slope(-m) for m in nearest]
        found, (bends, moves) = (
            [self.features(i) for i in range(2)],
            zip(*map(self.drift, range(2)), strict=True),
        )
        K = {
            (i, j): root(bend[i] * bend[j]) * dot(found[i], found[j]) / 2
            for i in range(2)
            for j in range(2)
        }
        part = (
            root(top(K[0, 0], K[0, 1], K[1, 1])) + root(dot(bend, [m**2 for m in moves]) / 2)
        ) ** 2
        lengths = [root(dot(f, f)) + m for f, m in zip(found, moves, strict=True)]
        part = least([part, iv.mpf(level) * largest(lengths) ** 2])
        slopes = dot([slope(low) for low, _ in boxes], bends) / 2
        return part + least([iv.mpf(level) * largest(bends), slopes])


def loss(m):
    return iv.log(1 + iv.exp(-m))


def slope(m):
    return 1 / (1 + iv.exp(m))

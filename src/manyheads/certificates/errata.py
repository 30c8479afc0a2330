"""Ledger texts: the 26 errata, each with its weight and the check that reproduces it."""

from .ledger import Entry

_PROOF = "docs/theory/errata.md#{}"


def _erratum(number: int, weight: str, place: str, title: str, printed: str, corrected: str, remark: str, used_by: tuple = ()):
    name = f"E{number}"
    return Entry(
        id=name,
        place=place,
        title=title,
        printed=printed,
        corrected=corrected,
        ours="",
        proof=_PROOF.format(name.lower()),
        checker=f"{'check_errata' if number <= 13 else 'check_errata_mixture'}.e{number}",
        remark=remark,
        used_by=used_by,
        weight=weight,
    )


ENTRIES = (
    _erratum(
        1, "real", "Section 2, notation", "softmax Jacobian",
        "φ'(v) = diag(φ(v)) − v vᵀ", "φ'(v) = diag(φ(v)) − φ(v)φ(v)ᵀ",
        "at v = (1, −2, ½) the printed matrix is off by 4, the corrected one by rounding", ("lemma1",),
    ),
    _erratum(
        2, "real", "Section 5.2", "softmax Jacobian at zero",
        "φ'(0) = I − 11ᵀ/T", "φ'(0) = (1/T)(I − 11ᵀ/T)",
        "T = 4: printed off by .5625; only the corrected one makes (7) come out", ("prop2",),
    ),
    _erratum(
        3, "typographic", "Section 2, footnote on pooling", "pooled readout",
        "U = u 1_Tᵀ", "U = 1_T uᵀ",
        "the printed product is d×T while U is T×d", ("eq1",),
    ),
    _erratum(
        4, "loose", "Corollary 1 (3)", "β3 is √d too large",
        "β3 = 2√T·d·R³(3√d R²x + 1)", "Proposition 1 gives 2√(Td)·R³(3√d R²x + 1)",
        "the printed one is true; only the version of Proposition 1 gives the factor d of (3)", ("cor1.3", "thm1"),
    ),
    _erratum(
        5, "typographic", "text after Corollary 1", "direction of the smallest eigenvalue",
        "as H increases the minimum eigenvalue becomes less positive", "less negative",
        "λ_min is at most 0 here and rises towards 0 as H grows", ("cor1.3",),
    ),
    _erratum(
        6, "debatable", "Theorem 1, (3)", "product form of the head condition",
        "√H ≳ d√T R⁵‖θ‖_{2,∞}D³", "√H ≥ 18D²β3(‖θ‖_{2,∞} + 3D), of order D²(1 + ‖θ‖_{2,∞} + D)",
        "from the zero start with an evenly spread target ‖θ‖_{2,∞} = D/√H: (3) then asks for ever less while the sketch does not. "
        "The product form needs ‖θ‖_{2,∞} ≥ 1 and D ≥ 1", ("thm1",),
    ),
    _erratum(
        7, "real", "Theorem 1", "order of ρ",
        "ρ ≲ d^{3/2}T^{3/2}R^{13}‖θ‖²_{2,∞}D²",
        "Section 6.1's ρ is of order (d²T^{3/2}R^{13}/√H + dT²R^{12})(1 + D + ‖θ‖_{2,∞})²",
        "T = d = R = H = 1, ‖θ‖_{2,∞} = D = b: the quotient is 3969, 2.1e6, 9.1e9 for b = 1, .1, .01, so no constant exists", ("thm1",),
    ),
    _erratum(
        8, "typographic", "Section 6.1, (14)", "sign of Taylor's inequality",
        "L̂(θ) ≤ …", "L̂(θ) ≥ …",
        "fails on random segments in the printed direction, never in the other", ("eq14",),
    ),
    _erratum(
        9, "typographic", "Section 6.1, (16)", "names of the endpoints",
        "β3(θ1) ∨ β3(θ2)", "β3(θ) ∨ β3(θ_k)",
        "with unrelated θ1, θ2 the inequality fails: θ1 = θ2 = 0 gives a smaller constant than the segment has", ("eq16",),
    ),
    _erratum(
        10, "typographic", "Section 6.2, (21)", "misplaced parenthesis",
        "(1 + ηβ̃3/√H)·max L̂^{-i}·‖·‖", "(1 + (ηβ̃3/√H)·max L̂^{-i})·‖·‖",
        "where the loss is small the printed factor is far below 1: leave-one-out runs break it", ("eq21",),
    ),
    _erratum(
        11, "real", "Corollary 2", "radius g_0",
        "g_0(1/K) = (2B_Φ + log K)/γ", "√2·(2B_Φ + log K)/γ, because ‖θ_*‖ = √2; 5/4 → 5/2 and 17 → 34",
        "linear limit, B_Φ = 1, K = 100: the printed radius reaches margin 3.67 and loss .0251 > 1/K", ("cor2", "prop7"),
    ),
    _erratum(
        12, "real", "Lemma 2 and Section 5.1", "coefficient of the first phase",
        "U_h^{(1)} = α_h1_T(ζ/2 u_*ᵀ + pᵀ)", "α_h1_T(ζ/4 u_*ᵀ + pᵀ)",
        "the fitted coefficient is ζ/4; the printed residual does not fall with n1", ("lemma2",),
    ),
    _erratum(
        13, "real", "Section 5.2, display of ∇_WΦ(θ^{(1)})", "the same coefficient",
        "αζ/2", "αζ/4",
        "with φ'(0) of E2 the corrected display equals automatic differentiation; (7) is right with ζ/4", ("prop2",),
    ),
    _erratum(
        14, "loose", "Proposition 2, P3", "margin of the first phase",
        "γ = γ_*/2 with probability 1−δ if √H ≳ …", "γ = γ_*, for every H ≥ 1, surely",
        "sign(α)α = 1: every head has the same derivative along θ_*; the measured margin does not depend on H", ("prop2",),
    ),
    _erratum(
        15, "real", "Sections 5.3 and 7", "order of the margins",
        "γ_attn ≥ γ_* ≥ γ_lin", "neither inequality is unconditional",
        "S = 3, T = 8, ζ = .5, M = 4: γ_* = 9.40 > γ_attn = 6; T = 8, ζ = .25, S = 1.5, Z̄ = .1: (7) gives .498 < γ_lin = .550", ("linear-margin",),
    ),
    _erratum(
        16, "debatable", "Proposition 3", "sign of Γ",
        "Γ ≥ (8√(2(M+1))/3S²) log((1/ζ−1)/ε)", "also Γ ≥ 0",
        "only matters for ε > 1/ζ − 1: ζ = .8, ε = .5 allows Γ = −5.23, where the irrelevant mass is .61", ("prop3",),
    ),
    _erratum(
        17, "debatable", "Section 5.3", "size of the logit gap",
        "a gap of O(S²)", "Θ(S⁴) for W_*, Θ(S²) for W_opt",
        "measured exponent of the gap in S: 4 and 2", ("eq8", "sec5.3"),
    ),
    _erratum(
        18, "real", "Section 5.3", "exponent of H",
        "H^{p−1/4} ≲ C/log^{5/2}n", "H^{p−3/4} ≲ C/log^{5/2}n",
        "from H^{1/2} ≳ log⁵n C^{-2}H^{2p−1}; the conclusion is unchanged", ("sec5.3",),
    ),
    _erratum(
        19, "debatable", "Section 5.3", "reach of the contradiction",
        "a contradiction since n > 1", "only for n above an absolute constant",
        "with every hidden constant equal to 1, n = 2 and H = 1 satisfy all conditions", ("sec5.3",),
    ),
    _erratum(
        20, "typographic", "Section 7", "margin of the attention model",
        "margin = … − 2εZ_μ/S with Γ ≳ log(·)/S", "≥ … − 2εZ_μ/S² with Γ ≳ log(·)/S²",
        "for S < 1 the measured margin differs from the printed equality; compare (11)", ("prop3",),
    ),
    _erratum(
        21, "typographic", "Section 5.2", "names of the factors",
        "W_* = W_{K,*}W_{Q,*}ᵀ", "W = W_Q W_Kᵀ by the paper's convention: the two names are swapped",
        "the convention of Section 2 applied to the printed factors gives W_*ᵀ, which differs from W_*", ("prop2",),
    ),
    _erratum(
        22, "real", "Assumption 3", "radius below 1",
        "Assumption 1 holds with R = √(S² + Z² + 2Z_ν/M)", "R = max(1, that)",
        "S < 1: the printed R is below 1, which Assumption 1 excludes, and b1 ≤ b3 fails there", ("asm1", "asm3"),
    ),
    _erratum(
        23, "real", "Section 6.2", "step size against β̃1",
        "η ≤ 1/ρ ≤ 1/β̃1²", "true for Section 6.1's ρ; for ρ = β2 only η ≤ 4/β1²: add η ≤ 1/β1²",
        "many heads: β2 tends to β1²/4", ("thm2",),
    ),
    _erratum(
        24, "debatable", "Definition 1 and Proposition 2", "constants of at least 1",
        "B_2 ≥ 1, B_Φ ≥ 1 are required; Proposition 2 gives B_2 = √T(S+P)", "max(1, ·)",
        "weak signals: √T(S+P) is below 1", ("def1.p1", "def1.p2", "prop2"),
    ),
    _erratum(
        25, "loose", "Proposition 2, P2", "union bound over samples",
        "√(2log(n/δ))", "√(2log(2/δ)): with W^{(1)} = 0 one random sum serves all samples; printed is right for n ≥ 2",
        "the ratio |Φ̃(X_i)|/|c(X_i)| is the same for every sample", ("def1.p2", "prop2"),
    ),
    _erratum(
        26, "debatable", "Section 5.1", "law of 𝓡",
        "γ_lin = Ω(ζS), law of 𝓡 unspecified", "true for random 𝓡 (or pooled U); S√(ζT/2) for a fixed index set",
        "certified margins of samples: formula 1 for random positions, formula 2 for fixed ones", ("linear-margin",),
    ),
)

"""Heads and starts by grid search on two handwritten digits: who wins against logistic regression, and why.

Each image is 16 tokens, its 2x2 patches. The classifier is an ordinary estimator: it is searched, cloned and scored by
scikit-learn like any other. Takes about a minute.
"""

import numpy as np
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import manyheads as mh

data = mh.digits(3, 8)
X, X_test, y, y_test = train_test_split(
    data.tokens, data.names, test_size=0.25, random_state=0, stratify=data.names
)

attention = mh.MultiHeadAttentionClassifier(
    step_size=1.0, num_steps=150, early_stopping=False, random_state=0
)
grid = [
    {"start": ["zero"], "num_heads": [1]},
    {"start": ["first_phase"], "num_heads": [2, 64]},
    {"start": ["gaussian"], "num_heads": [1, 4]},
]
search = GridSearchCV(attention, grid, cv=3).fit(X, y)
for settings, score in zip(
    search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True
):
    print(
        f"{settings['num_heads']} heads, {settings['start']} start: {1 - score:.1%} wrong in cross-validation"
    )

flattened = FunctionTransformer(lambda tokens: tokens.reshape(len(tokens), -1))
linear = make_pipeline(flattened, StandardScaler(), LogisticRegression()).fit(X, y)
pooled = make_pipeline(
    FunctionTransformer(lambda tokens: tokens.mean(axis=1)), LogisticRegression()
).fit(X, y)

best = search.best_params_
wrong = {
    f"attention, {best['num_heads']} heads, {best['start']} start": search.best_estimator_.predict(
        X_test
    )
    != y_test,
    "logistic regression, all pixels": linear.predict(X_test) != y_test,
    "logistic regression, mean patch": pooled.predict(X_test) != y_test,
}
for name, errors in wrong.items():
    print(f"{name}: {errors.sum()} of {len(errors)} wrong")
ours, theirs, blurred = wrong.values()
only_ours, only_theirs = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
chance = binomtest(only_ours, only_ours + only_theirs).pvalue if only_ours + only_theirs else 1.0
winner = (
    "attention"
    if only_ours < only_theirs
    else "logistic regression"
    if only_theirs < only_ours
    else "nobody"
)
sure = "" if chance < 0.05 else ", and the difference may be chance"
print(
    f"Winner: {winner}. Only attention errs on {only_ours} images, only the linear model on {only_theirs}{sure}."
)

maps = search.best_estimator_.attention_maps(X_test)  # (images, heads, 16 queries, 16 patches)
top = float(maps.max(axis=-1).mean())
print(
    f"Why: the mean patch leaves {blurred.mean():.0%} errors, so what tells these digits apart is where the ink is. "
    "The linear model has a weight for every pixel in its place. Attention finds places only by what patches look "
    f"like: its heads put {top:.0%} of their attention on their first patch; even attention would put {1 / 16:.0%}."
)
for label, looks in zip(y_test[:5], maps[:5, 0].mean(axis=1), strict=True):
    print(
        f"a {label}: the first head looks most at patch {np.argmax(looks)}, with {looks.max():.0%} of its attention"
    )

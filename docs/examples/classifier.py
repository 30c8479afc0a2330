"""Heads and starts by grid search on two handwritten digits, against logistic regression on the same splits.

Each image is 16 tokens, its 2x2 patches. The classifier is an ordinary estimator: it is searched, cloned and scored by
scikit-learn like any other.
"""

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import manyheads as mh

data = mh.digits(3, 8)
X, X_test, y, y_test = train_test_split(data.tokens, data.names, test_size=0.25, random_state=0, stratify=data.names)

attention = mh.MultiHeadAttentionClassifier(step_size=1.0, num_steps=150, early_stopping=False, random_state=0)
grid = [{"start": ["zero"], "num_heads": [1]}, {"start": ["gaussian"], "num_heads": [1, 4]}]
search = GridSearchCV(attention, grid, cv=3).fit(X, y)
for settings, score in zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True):
    print(f"{settings['num_heads']} heads, {settings['start']} start: {1 - score:.1%} wrong in cross-validation")

flattened = FunctionTransformer(lambda tokens: tokens.reshape(len(tokens), -1))
linear = make_pipeline(flattened, StandardScaler(), LogisticRegression()).fit(X, y)
pooled = make_pipeline(FunctionTransformer(lambda tokens: tokens.mean(axis=1)), LogisticRegression()).fit(X, y)

errors = {
    f"attention, {search.best_params_}": search.best_estimator_.predict(X_test) != y_test,
    "logistic regression, all pixels": linear.predict(X_test) != y_test,
    "logistic regression, mean patch": pooled.predict(X_test) != y_test,
}
for name, wrong in errors.items():
    print(f"{name}: {wrong.sum()} of {len(wrong)} wrong")
names, counts = list(errors), [int(wrong.sum()) for wrong in errors.values()]
if counts[0] < counts[1]:
    print("attention wins: it reads pixels in the light of the other patches")
else:
    print(
        "logistic regression wins or draws: where a pixel is tells these digits apart, and it sees all pixels in place"
    )

maps = search.best_estimator_.attention_maps(X_test[:5])  # (5, heads, 16 queries, 16 tokens)
for label, looks in zip(y_test[:5], maps[:, 0].mean(axis=1), strict=True):
    print(f"a {label}: the first head looks most at patch {np.argmax(looks)}, with {looks.max():.0%} of its attention")

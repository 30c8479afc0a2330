"""Heads by grid search on two handwritten digits, and who wins against logistic regression.

Each image is 16 tokens, its 2x2 patches. The probe is an ordinary estimator: it is searched, cloned and scored by
scikit-learn like any other. Takes about a minute.
"""

from sklearn.model_selection import GridSearchCV, train_test_split

from manyheads import AttentionProbe, data

digits = data.digits(3, 8)
X, X_test, y, y_test = train_test_split(
    digits.tokens, digits.names, test_size=0.25, random_state=0, stratify=digits.names
)
grid = {"num_heads": [1, 4, 16], "positions": [True, False]}
search = GridSearchCV(AttentionProbe(penalty=1e-4), grid, cv=3).fit(X, y)
scores = search.cv_results_["mean_test_score"]
for settings, score in zip(search.cv_results_["params"], scores, strict=True):
    places = "with" if settings["positions"] else "without"
    print(
        f"{settings['num_heads']} heads {places} places: {1 - score:.1%} wrong in cross-validation"
    )
print(f"{1 - search.score(X_test, y_test):.1%} wrong on the images set aside")

best = search.best_estimator_
print(best.report(X, y, curve=False))
for label, looks in zip(y_test[:5], best.attention(X_test[:5])[:, 0], strict=True):
    print(f"a {label}: the first head looks most at patch {looks.argmax()}, with {looks.max():.0%}")

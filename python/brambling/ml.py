"""Models with scikit-learn's manners."""

from brambling._k_means import KMeans
from brambling._linear import LinearRegression, Ridge
from brambling._logistic import LogisticRegression
from brambling._scaler import StandardScaler

# All of them: a new one is a line here, and what docs/add-a-model.md says.
__all__ = ["KMeans", "LinearRegression", "LogisticRegression", "Ridge", "StandardScaler"]

"""scikit-learn as programs see it, if installed: estimators and measures on arrays, in a closed library."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from codev_env.sandbox.language import closed, guards, reviewed
from codev_env.sandbox.language.facade import Facade, nested
from codev_env.sandbox.language.refusals import RefusedCall

try:
    import sklearn
except ImportError:
    sklearn = None

_PACKAGES = {
    "cluster": "AffinityPropagation AgglomerativeClustering Birch BisectingKMeans DBSCAN HDBSCAN KMeans MeanShift "
    "MiniBatchKMeans OPTICS SpectralClustering dbscan estimate_bandwidth k_means kmeans_plusplus mean_shift",
    "covariance": "EmpiricalCovariance LedoitWolf MinCovDet",
    "datasets": "make_blobs make_circles make_classification make_moons make_regression",
    "decomposition": "FactorAnalysis FastICA IncrementalPCA KernelPCA NMF PCA TruncatedSVD",
    "ensemble": "ExtraTreesClassifier ExtraTreesRegressor GradientBoostingClassifier GradientBoostingRegressor "
    "IsolationForest RandomForestClassifier RandomForestRegressor",
    "exceptions": "ConvergenceWarning NotFittedError",
    "feature_extraction": "",
    "feature_extraction.image": "extract_patches_2d grid_to_graph img_to_graph reconstruct_from_patches_2d",
    "impute": "SimpleImputer",
    "linear_model": "BayesianRidge ElasticNet HuberRegressor Lasso LinearRegression LogisticRegression "
    "RANSACRegressor Ridge RidgeClassifier SGDClassifier SGDRegressor TheilSenRegressor",
    "manifold": "Isomap TSNE",
    "metrics": "accuracy_score adjusted_mutual_info_score adjusted_rand_score auc balanced_accuracy_score "
    "calinski_harabasz_score classification_report confusion_matrix davies_bouldin_score euclidean_distances "
    "explained_variance_score f1_score homogeneity_score jaccard_score log_loss max_error mean_absolute_error "
    "mean_absolute_percentage_error mean_squared_error median_absolute_error mutual_info_score "
    "normalized_mutual_info_score pairwise_distances precision_recall_fscore_support precision_score r2_score "
    "recall_score roc_auc_score roc_curve root_mean_squared_error silhouette_samples silhouette_score",
    "metrics.pairwise": "cosine_distances cosine_similarity euclidean_distances manhattan_distances "
    "pairwise_distances rbf_kernel",
    "mixture": "BayesianGaussianMixture GaussianMixture",
    "model_selection": "GridSearchCV KFold StratifiedKFold cross_val_predict cross_val_score train_test_split",
    "naive_bayes": "GaussianNB",
    "neighbors": "BallTree KDTree KNeighborsClassifier KNeighborsRegressor KernelDensity LocalOutlierFactor "
    "NearestCentroid NearestNeighbors kneighbors_graph",
    "pipeline": "Pipeline make_pipeline",
    "preprocessing": "Binarizer KBinsDiscretizer LabelBinarizer LabelEncoder MaxAbsScaler MinMaxScaler Normalizer "
    "OneHotEncoder OrdinalEncoder PolynomialFeatures RobustScaler StandardScaler binarize label_binarize "
    "minmax_scale normalize scale",
    "svm": "LinearSVC LinearSVR NuSVC OneClassSVM SVC SVR",
    "tree": "DecisionTreeClassifier DecisionTreeRegressor export_text",
    "utils": "resample shuffle",
}
_DEPTH = 6
_VALUES = (np.generic, np.random.RandomState, np.random.Generator, range)
_OWN = "use the names of the packages for image work, such as sklearn.cluster"
_HINTS = {
    **dict.fromkeys(("load_iris", "load_digits", "fetch_openml"), "the images of the task are all there is"),
    **dict.fromkeys(("set_config", "config_context", "show_versions"), _OWN),
    **dict.fromkeys(("clone", "base", "externals", "utils"), _OWN),
    "make_scorer": "name one, for example scoring='accuracy'",
    "FunctionTransformer": "call the function on the array",
    "tree_": "use sklearn.tree.export_text",
    "estimators_": "use the forest itself",
    "get_arrays": "use query or query_radius",
}


def _check(value: Any, depth: int = _DEPTH) -> None:
    """Refuse arguments that scikit-learn would call, perhaps with memory of its own, and whatever may hide one."""
    if type(value) in closed.ATOMS or isinstance(value, _VALUES):
        return
    if isinstance(value, type) and issubclass(value, np.generic | bool | int | float):
        return  # a type of numbers
    if type(value) is np.ndarray or isinstance(value, np.ma.MaskedArray):
        parts = value.ravel().tolist() if value.dtype.hasobject else []
    elif (type(value) is list or isinstance(value, tuple)) and depth:
        parts = list(value)
    elif type(value) is dict and depth:
        parts = [*value.keys(), *value.values()]
    elif not isinstance(value, tuple) and _is_of_library(type(value)):  # a row of a table is a tuple of pandas
        parts = []
    else:
        raise RefusedCall("scikit-learn takes numbers, arrays and names here, no functions: compute with NumPy.")
    for part in parts:
        _check(part, depth - 1)


def _is_of_library(kind: type) -> bool:
    return closed.library_of(kind) is not None or kind.__module__.startswith("scipy.sparse")


def _without_files(**options: Any) -> None:
    if options.get("memory") is not None:
        raise RefusedCall("scikit-learn keeps nothing in files here: leave `memory` out.")


def _made(cls: type) -> Callable[..., Any]:
    def make(*args: Any, **kwargs: Any) -> Any:
        _without_files(**kwargs)
        return cls(*args, **kwargs)

    return make


def _set_params(estimator: Any) -> Callable[..., Any]:
    """`set_params` before the first `fit`: compiled code trusts that what was learned fits the parameters."""

    def set_params(**params: Any) -> Any:
        parts = [estimator, *estimator.get_params(deep=True).values()]
        if any(name.endswith("_") and not name.startswith("_") for part in parts for name in _attributes(part)):
            raise RefusedCall("set_params() is not available here after fit(): make a new estimator.")
        _without_files(**{key.rpartition("__")[2]: value for key, value in params.items()})
        params = closed.LIBRARIES["sklearn"].arguments((), params)[1]
        return estimator.set_params(**params)

    return set_params


def _attributes(part: Any) -> Any:
    if isinstance(part, list | tuple):
        return [name for one in part for name in _attributes(one)]
    return getattr(part, "__dict__", {}) if closed.library_of(type(part)) else ()


def _parts(obj: Any) -> Any:
    """The steps of a pipeline, by name."""
    return obj if isinstance(obj, dict) else ()


def seed(_value: int, _used: bool) -> None:
    """scikit-learn draws from NumPy's stream; nothing to start."""


def warm() -> None:
    """Use once what scikit-learn loads lazily."""
    if sklearn is None:
        return
    for name in _PACKAGES:
        importlib.import_module(f"sklearn.{name}")
    from sklearn import (
        cluster,
        decomposition,
        ensemble,
        linear_model,
        metrics,
        mixture,
        model_selection,
        neighbors,
        preprocessing,
        svm,
    )

    points = np.random.RandomState(0).rand(40, 3)
    labels = (points[:, 0] > 0.5).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for estimator in (
            cluster.KMeans(2, n_init=1), cluster.MiniBatchKMeans(2, n_init=1), cluster.DBSCAN(), cluster.MeanShift(),
            cluster.AgglomerativeClustering(2), cluster.SpectralClustering(2), mixture.GaussianMixture(2),
            decomposition.PCA(2), decomposition.NMF(2), neighbors.NearestNeighbors(), neighbors.LocalOutlierFactor(5),
            ensemble.IsolationForest(n_estimators=2), svm.OneClassSVM(), neighbors.KernelDensity(),
        ):  # fmt: skip
            str(estimator.fit(points))
        for classifier in (
            svm.SVC(probability=False), svm.LinearSVC(), neighbors.KNeighborsClassifier(),
            linear_model.LogisticRegression(), ensemble.RandomForestClassifier(2), linear_model.LinearRegression(),
            linear_model.RANSACRegressor(), linear_model.Lasso(), ensemble.GradientBoostingClassifier(n_estimators=2),
        ):  # fmt: skip
            classifier.fit(points, labels).predict(points)
        if "pandas" in sys.modules:  # tables are read by a package that loads more when it meets one
            table = sys.modules["pandas"].DataFrame(points, columns=list("abc"))
            linear_model.LinearRegression().fit(table, table["a"]).predict(table)
            preprocessing.OneHotEncoder().fit_transform(table)
        metrics.silhouette_score(points, labels)
        metrics.classification_report(labels, labels)
        metrics.roc_auc_score(labels, points[:, 0])
        model_selection.cross_val_score(neighbors.KNeighborsClassifier(), points, labels, cv=2)
        model_selection.train_test_split(points, labels, stratify=labels)


def modules() -> dict[str, Facade]:
    """The façades by import name; empty where scikit-learn is not installed."""
    if sklearn is None:
        return {}
    table = reviewed.read("sklearn")
    library = closed.ClosedLibrary(
        table.classes, table.hidden, _HINTS, check=_check, dropped=("n_jobs", "verbose"), depth=_DEPTH, labels=_parts
    )
    closed.close("sklearn", library)
    guards.handle((importlib.import_module("sklearn.base").BaseEstimator,), "set_params", _set_params)
    found: dict[str, Facade] = {}
    for name, wanted in _PACKAGES.items():
        module = importlib.import_module(f"sklearn.{name}")
        values = {key: getattr(module, key) for key in wanted.split() if hasattr(module, key)}
        found[f"sklearn.{name}"] = Facade(
            f"sklearn.{name}", {key: _offered(library, value) for key, value in values.items()}, _HINTS
        )
    nested(found, Facade("sklearn", {"__version__": sklearn.__version__}, _HINTS), "sklearn")
    return found


def _offered(library: closed.ClosedLibrary, value: Any) -> Any:
    if not isinstance(value, type):
        return library.guarded(_made(value))
    return value if issubclass(value, BaseException) else closed.offer(value, _made(value))


def classes() -> list[type]:
    """The classes that the table lists."""
    found = []
    for name, wanted in _PACKAGES.items():
        module = importlib.import_module(f"sklearn.{name}")
        found += [getattr(module, key) for key in wanted.split() if isinstance(getattr(module, key, None), type)]
    return [value for value in found if not issubclass(value, BaseException)]

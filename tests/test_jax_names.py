"""Which of JAX's public names are not here: one list, exact in both directions where JAX is installed."""
import types

import pytest

import loopwright as lw

MISSING = {
    "lax": {
        # names of types for annotations, and settings of products on other machines
        "AccuracyMode", "ConvGeneralDilatedDimensionNumbers", "DotAlgorithm", "DotAlgorithmPreset", "DotDimensionNumbers",
        "PrecisionLike", "RaggedDotDimensionNumbers", "RandomAlgorithm", "Tolerance",
        # several devices, and orders between programs
        "after_all", "create_token", "dce_sink", "pcast", "precv", "psend", "ragged_all_to_all", "with_sharding_constraint",
        # of compilers
        "composite", "padtype_to_pads", "reduce_window_shape_tuple", "shape_as_value", "stage",
        # convolutions, random bits and products of special forms
        "conv_general_dilated_local", "conv_general_dilated_patches", "conv_general_permutations", "conv_general_shape_tuple",
        "conv_shape_tuple", "conv_transpose_shape_tuple", "ragged_dot_general", "rng_bit_generator", "rng_uniform",
        "scaled_dot", "scatter_apply",
    },
    "nn": {"get_scaled_dot_general_config", "scaled_dot_general", "scaled_matmul"},  # products in blocks of float8
    "tree": {"broadcast", "flatten_with_path", "leaves_with_path", "map_with_path", "reduce_associative", "static"},
    "scipy.linalg": {
        "funm", "hessenberg", "lu", "lu_factor", "lu_solve", "rsf2csf", "schur", "sqrtm",
    },
    "scipy.special": set(), "scipy.stats": set(), "nn.initializers": set(), "ops": set(), "scipy": set(),
}


@pytest.mark.parametrize("module", MISSING)
def test_what_is_missing_is_named(module):
    jax = pytest.importorskip("jax", reason="compares with JAX where that is installed")
    theirs, ours = jax, lw
    for part in module.split("."):
        __import__(f"{theirs.__name__}.{part}")
        theirs, ours = getattr(theirs, part), getattr(ours, part)
    names = {name for name in dir(theirs) if not name.startswith("_") and not name.endswith("_p")
             and not isinstance(getattr(theirs, name), types.ModuleType)}
    assert names - set(dir(ours)) == MISSING[module]


@pytest.mark.parametrize("module", MISSING)
def test_no_missing_name_is_there(module):
    ours = lw
    for part in module.split("."):
        ours = getattr(ours, part)
    assert not MISSING[module] & set(dir(ours))
    assert set(ours.__all__) <= set(dir(ours))

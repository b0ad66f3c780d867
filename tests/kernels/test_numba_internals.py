"""The contract with numba and llvmlite: one test for each interface that kising uses and they may change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.contracts import contract, imported_names

import kising

PACKAGE = Path(kising.__file__).parent
HOME = PACKAGE / "kernels" / "numba_internals.py"

NAMES = {
    "llvmlite.ir",
    "numba.core.config",
    "numba.core.cgutils.get_or_insert_function",
    "numba.core.typing.templates.AbstractTemplate",
    "numba.core.typing.templates.infer_global",
    "numba.core.typing.templates.signature",
    "numba.extending.intrinsic",
    "numba.extending.lower_builtin",
    "numba.extending.models",
    "numba.extending.register_model",
}
"""Each has a test below."""


def test_all_internals_are_imported_in_one_file_and_tested_here() -> None:
    private = ("llvmlite", "numba.core", "numba.extending", "numba.np")
    users = {
        path: {name for name in imported_names(path) if name.startswith(private)}
        for path in PACKAGE.rglob("*.py")
    }
    assert {path for path, names in users.items() if names} == {HOME}
    assert users[HOME] == NAMES


def test_llvmlite_ir() -> None:
    with contract("numba", "llvmlite.ir", HOME):
        from llvmlite import ir

        four = ir.VectorType(ir.IntType(32), 4)
        assert four.count == 4
        assert str(ir.Constant(four, [7] * 4)) == "<4 x i32> <i32 7, i32 7, i32 7, i32 7>"
        assert "undef" in str(ir.Constant(four, ir.Undefined))
        assert str(ir.VectorType(ir.DoubleType(), 8)) == "<8 x double>"
        function = ir.Function(ir.Module(), ir.FunctionType(four, [four]), "f")
        builder = ir.IRBuilder(function.append_basic_block())
        for name in (
            "fadd",
            "fsub",
            "fmul",
            "fdiv",
            "fneg",
            "select",
            "fcmp_ordered",
            "fptosi",
            "sitofp",
            "sext",
        ):
            assert callable(getattr(builder, name)), name
        for name in (
            "trunc",
            "bitcast",
            "and_",
            "or_",
            "shl",
            "lshr",
            "insert_element",
            "shuffle_vector",
            "gep",
        ):
            assert callable(getattr(builder, name)), name
        builder.ret(builder.add(function.args[0], ir.Constant(four, [1] * 4)))
        assert "add <4 x i32>" in str(function)


def test_numba_core_cgutils_get_or_insert_function() -> None:
    with contract("numba", "numba.core.cgutils.get_or_insert_function", HOME):
        from llvmlite import ir
        from numba.core.cgutils import get_or_insert_function

        module = ir.Module()
        kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()])
        first = get_or_insert_function(module, kind, "llvm.sqrt.f64")
        assert get_or_insert_function(module, kind, "llvm.sqrt.f64") is first
        assert str(module).count("declare") == 1


def test_numba_core_typing_templates_signature() -> None:
    with contract("numba", "numba.core.typing.templates.signature", HOME):
        from numba import types
        from numba.core.typing.templates import signature

        found = signature(types.float64, types.int64, types.float32)
        assert (found.return_type, found.args) == (types.float64, (types.int64, types.float32))


def test_numba_core_typing_templates_abstracttemplate() -> None:
    with contract("numba", "numba.core.typing.templates.AbstractTemplate", HOME):
        from numba.core.typing.templates import AbstractTemplate

        class Rule(AbstractTemplate):
            def generic(self, args: object, kws: object) -> str:
                return f"asked with {args} {kws}"

        assert Rule.apply is AbstractTemplate.apply  # which asks `generic`
        assert Rule.generic is not getattr(AbstractTemplate, "generic", None)


@pytest.mark.parametrize(
    "interface", sorted(name for name in NAMES if "extending" in name or "infer_global" in name)
)
def test_a_type_of_our_own(interface: str, own_type: dict[str, str]) -> None:
    with contract("numba", interface, HOME):
        assert own_type.get(interface, "not reached") == ""


def test_a_kernel_is_kept_where_it_is_told_to_be(tmp_path: Path) -> None:
    with contract(
        "numba", "numba.core.config.CACHE_DIR, read when a function is decorated, and its indexes", HOME
    ):
        (tmp_path / "one.py").write_text(
            "import numba, pathlib\n"
            "from kising.kernels.numba_internals import CACHE_INDEXES, cache_in\n"
            "with cache_in(pathlib.Path('ours')):\n"
            "    @numba.njit(cache=True)\n"
            "    def f(x):\n        return x + 1\n"
            "@numba.njit(cache=True)\ndef g(x):\n    return x + 2\n"
            "assert (f(1), g(1)) == (2, 3)\n"
            "print(len(list(pathlib.Path('ours').rglob(CACHE_INDEXES))))\n"
            "print(len(list(pathlib.Path('theirs').rglob(CACHE_INDEXES))))\n"
        )
        environment = {**os.environ, "NUMBA_CACHE_DIR": "theirs", "PYTHONPATH": str(PACKAGE.parent)}
        found = subprocess.run(
            [sys.executable, "one.py"],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        assert found.stdout.split() == ["1", "1"]


OWN_TYPE = """
import json, operator
import numba, numba.extending, numba.core.typing.templates as templates
import numpy as np
from llvmlite import ir
from numba import types
from numba.core.datamodel import default_manager

results = {}
extending = numba.extending

class Pair(types.Type):
    def __init__(self):
        super().__init__(name="Pair")

def load(typing, array):
    def generate(context, builder, sig, args):
        start = context.make_array(sig.args[0])(context, builder, args[0]).data
        kind = context.get_value_type(Pair())
        return builder.load(builder.bitcast(start, kind.as_pointer()), align=8)
    return Pair()(array), generate

def second(typing, pair):
    def generate(context, builder, sig, args):
        return builder.extract_element(args[0], ir.Constant(ir.IntType(32), 1))
    return types.float64(pair), generate

def models():
    global Model
    class Model(extending.models.PrimitiveModel):
        def __init__(self, manager, of):
            super().__init__(manager, of, ir.VectorType(ir.DoubleType(), 2))

def register_model():
    extending.register_model(Pair)(Model)
    assert isinstance(default_manager.lookup(Pair()), Model)

def intrinsic():
    global load, second
    load, second = extending.intrinsic(load), extending.intrinsic(second)
    assert numba.njit(lambda array: second(load(array)))(np.arange(2.0)) == 1.0

def double(array):
    pair = load(array)
    return second(pair + pair)

def infer_global():
    @templates.infer_global(operator.add)
    class Rule(templates.AbstractTemplate):
        def generic(self, args, kws):
            ours = all(isinstance(argument, Pair) for argument in args)
            return templates.signature(Pair(), *args) if ours else None
    try:
        numba.njit(double)(np.arange(2.0))
    except (numba.core.errors.LoweringError, NotImplementedError):
        pass  # typed, and not yet lowered

def lower_builtin():
    extending.lower_builtin(operator.add, Pair, Pair)(lambda context, builder, sig, args: builder.fadd(*args))
    assert numba.njit(double)(np.arange(2.0)) == 2.0

for step in (models, register_model, intrinsic, infer_global, lower_builtin):
    home = "numba.core.typing.templates" if step is infer_global else "numba.extending"
    try:
        step()
        results[f"{home}.{step.__name__}"] = ""
    except Exception as error:
        results[f"{home}.{step.__name__}"] = repr(error)
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def own_type() -> dict[str, str]:
    """What went wrong with each interface when a vector type was made as kising makes its own; "" if nothing did.

    In a process of its own: numba registers types for good.
    """
    child = subprocess.run([sys.executable, "-c", OWN_TYPE], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    found: dict[str, str] = json.loads(child.stdout)
    return found

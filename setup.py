"""The one part of the build that pyproject.toml cannot say: the compiled twin, where a compiler is."""

import sys
from pathlib import Path

from setuptools import setup

sys.path.insert(0, str(Path(__file__).resolve().parent / "tools"))
import twin_build

setup(ext_modules=twin_build.extensions(sys.argv[1:]))

"""A wheel holds every file of the package: pages, styles and tables as well as code."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    # Without the native kernels, which need minutes: what is asked here is which files are taken along.
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--quiet",
        "-w",
        str(tmp_path),
    ]
    subprocess.run([*command, "-C", "wheel.cmake=false", str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("paceline-*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    package = ROOT / "src" / "paceline"
    files = {path.relative_to(package.parent).as_posix() for path in package.rglob("*") if path.is_file()}
    expected = {name for name in files if "__pycache__" not in name and not name.endswith(".so")}
    assert any(not name.endswith((".py", ".pyi")) for name in expected), "there are data files to look for"
    assert expected - packed == set()

#!/usr/bin/env python3
"""Assembles the wheel from the files that ninja built in BUILD/wheel; scripts/build_wheel.sh runs it.

    assemble_wheel.py BUILD TORCH OUT       TORCH is the folder of the PyTorch that the build uses; patchelf must be in PATH
"""
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import portable_elf  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT = 60_000_000

# Libraries that every Linux has (PEP 600), and libraries that come with PyTorch or with Arrow.
OF_LINUX = re.compile(r"(libc|libm|libdl|librt|libpthread|libutil|libstdc\+\+|libgcc_s)\.so\.\d+$|ld-linux-x86-64\.so\.2$")
OF_ARROW = re.compile(r"lib(arrow|parquet)\.so")
OF_TORCH = re.compile(r"lib(torch|torch_cpu|torch_cuda|c10|c10_cuda|gomp)\.so")
# Libraries that a PyTorch for CPUs lacks. With such a PyTorch, nothing calls them.
GPU_LIBRARIES = ("libtorch_cuda.so", "libc10_cuda.so", "libtorch_nvshmem.so")
# Symbols that the wheel does not need (src/bindings/left_out.cpp). OpenCV's imgcodecs needs the symbols of OpenJPEG, GDAL, GDCM and OpenEXR
# only for image formats that check_image refuses. OpenCV's core needs the symbols of GLX only to open OpenGL windows.
LEFT_OUT = re.compile(r"opj_|GDAL|_ZNK?\d+GDAL|_ZNK?4gdcm|_ZNK?7Imf_3_\d|glX[A-Z]")
# Libraries that must not be in the wheel because of their licenses; src/bindings/left_out.cpp replaces the functions. JBIG is under the GPL.
NOT_CARRIED = ("libjbig.so",)


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needed_by(file):
    return run("patchelf", "--print-needed", str(file)).split()


def dynamic_symbols(file, *options):
    return {line.split()[-1].split("@")[0] for line in run("nm", "-D", *options, str(file)).splitlines()}


def places():
    """Returns {name: path} of each library of the distribution, with the path at which the dynamic loader finds it."""
    found = {}
    for line in run("/sbin/ldconfig", "-p").splitlines()[1:]:
        name, _, rest = line.strip().partition(" ")
        if "x86-64" in rest:
            found.setdefault(name, pathlib.Path(rest.split("=> ")[1]).resolve())
    return found


class Package:
    """The wheel's folder tessera/ while it is being filled."""

    def __init__(self, folder, torch):
        self.folder, self.torch = folder, torch
        self.carried = {}  # soname -> (the copy in the wheel, the original file in the system)
        self.known = places()

    def carry(self, name):
        """Copies a library of the distribution into the wheel and names the copy so that no other package's copy has the same name."""
        if name in self.carried:
            return self.carried[name][0].name
        if name not in self.known:
            sys.exit(f"assemble_wheel.py: {name} is needed, but the loader cannot find it")
        source = self.known[name]
        digest = hashlib.sha256(source.read_bytes()).hexdigest()[:8]
        stem, _, version = name.partition(".so")
        target = self.folder / "lib" / f"{stem}-{digest}.so{version}"
        self.carried[name] = target, source
        shutil.copy(source, target)
        target.chmod(0o755)
        run("patchelf", "--set-soname", target.name, str(target))
        return target.name

    def adapt(self, file):
        """Makes a program or library use the carried libraries and PyTorch's."""
        run("strip", "--strip-unneeded", str(file))
        elf = portable_elf.Elf(file)
        portable_elf.age(elf)
        torch = arrow = False
        for name in needed_by(file):
            if name.split(".so")[0] in [gpu.split(".so")[0] for gpu in GPU_LIBRARIES] or name.startswith("libgomp"):
                run("patchelf", "--remove-needed", name, str(file))  # libtorch.so loads this library itself if PyTorch has it
            elif name.startswith(NOT_CARRIED):
                run("patchelf", "--remove-needed", name, str(file))
            elif OF_TORCH.match(name):
                torch = True
            elif OF_ARROW.match(name):
                arrow = True
            elif not OF_LINUX.match(name) and name != "libtessera.so":
                run("patchelf", "--replace-needed", name, self.carry(name), str(file))
        up = os.path.relpath(self.folder, file.parent)
        lib = "" if file.parent.name == "lib" else f"/{up}/lib"
        rpath = f"$ORIGIN{lib}" + (f":$ORIGIN/{up}/../torch/lib" if torch else "") + (f":$ORIGIN/{up}/../pyarrow" if arrow else "")
        run("patchelf", "--set-rpath", rpath, str(file))

    def binaries(self):
        return sorted(f for part in ("bin", "libexec", "lib") for f in (self.folder / part).rglob("*") if f.is_file() and
                      f.read_bytes()[:4] == b"\x7fELF")

    def check_symbols(self):
        """Checks that each undefined symbol is defined somewhere. Makes a missing symbol weak if only a PyTorch with CUDA has it or if
        nothing calls it; any other missing symbol is an error."""
        libraries = [f for f in self.torch.glob("lib/*.so*") if OF_TORCH.match(f.name) and f.name not in GPU_LIBRARIES]
        linux = [path for name, path in self.known.items() if OF_LINUX.match(name)]
        of_arrow = [f for f in self.torch.parent.glob("pyarrow/*.so*") if OF_ARROW.match(f.name)]
        have = set().union(*(dynamic_symbols(f, "--defined-only") for f in [*libraries, *linux, *of_arrow, *self.binaries()]))
        of_gpu = set().union(*(dynamic_symbols(self.torch / "lib" / f, "--defined-only") for f in GPU_LIBRARIES if (self.torch / "lib" / f).exists()))
        for file in self.binaries():
            lacking = {name for _, name, _ in portable_elf.Elf(file).undefined()} - have
            lacking -= dynamic_symbols(file, "--undefined-only") - {line.split()[-1].split("@")[0] for line in
                                                                   run("nm", "-D", str(file)).splitlines() if " U " in line}  # already weak
            lost = sorted(name for name in lacking if name not in of_gpu and not LEFT_OUT.match(name))
            if lost:
                sys.exit(f"assemble_wheel.py: {file.name}: undefined symbols: " + " ".join(lost))
            if lacking:
                portable_elf.weaken(portable_elf.Elf(file), lacking)


def copy_tree(source, target, *patterns):
    for pattern in patterns:
        for file in source.rglob(pattern):
            if file.is_file() and "__pycache__" not in file.parts:
                place = target / file.relative_to(source)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, place)


def fill(package, build):
    folder = package.folder
    copy_tree(ROOT / "python/tessera", folder, "*.py", "py.typed")
    for part in ("configs", "docs", "tuning"):
        copy_tree(ROOT / part, folder / "share/tessera" / part, "*")
    copy_tree(ROOT / "scripts", folder / "share/tessera/scripts", "log_to_wandb.py")
    copy_tree(ROOT / "include", folder / "include", "*.h")
    headers = next(p for p in (pathlib.Path("/usr/include/nlohmann"), pathlib.Path("/usr/local/include/nlohmann")) if p.is_dir())
    copy_tree(headers, folder / "include" / "nlohmann", "*.hpp")
    (folder / "lib/cmake/Tessera").mkdir(parents=True)
    shutil.copy(ROOT / "cmake/TesseraWheelConfig.cmake", folder / "lib/cmake/Tessera/TesseraConfig.cmake")
    shutil.copy(build / "TesseraConfigVersion.cmake", folder / "lib/cmake/Tessera")
    for part in ("bin", "libexec/tessera", "lib"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for file in sorted((build / "wheel" / part).iterdir()):
            if file.is_file():
                shutil.copy(file, folder / part)
    shutil.copy(build / "lib/libtessera_ops.so", folder / "lib")
    arrow = build / "lib/libtessera_arrow.so"  # loads the libraries of the installed pyarrow when a Parquet file is read
    if arrow.exists():
        shutil.copy(arrow, folder / "lib")
    for file in package.binaries():
        package.adapt(file)
    done = set()
    while len(done) < len(package.carried):  # repeats, because a carried library may need further libraries
        for name in sorted(set(package.carried) - done):
            done.add(name)
            package.adapt(package.carried[name][0])


# Packages of the distribution that the programs contain although no library of them is in the wheel: headers, and the plotting library
COMPILED_IN = ("nlohmann-json3-dev", "libcli11-dev", "libspdlog-dev", "libfmt-dev", "libcpp-httplib-dev", "libjs-dygraphs", "libgloo-dev")

# SPDX expression of the license under which the wheel contains each package of the distribution, by the start of the package's name
SPDX = {"libarchive": "BSD-2-Clause", "libbrotli": "MIT", "libbz2": "bzip2-1.0.6", "libcli11": "BSD-3-Clause", "libcpp-httplib": "MIT",
        "libdeflate": "MIT", "libfmt": "MIT", "libgloo": "BSD-3-Clause", "libicu": "ICU", "libjpeg62-turbo": "IJG AND BSD-3-Clause AND Zlib",
        "libjs-dygraphs": "MIT", "liblerc": "Apache-2.0", "liblzma": "LicenseRef-Public-Domain", "libopencv": "Apache-2.0",
        "libpng": "libpng-2.0", "libprometheus-cpp": "MIT", "libsentencepiece": "Apache-2.0", "libspdlog": "MIT", "libssl": "Apache-2.0",
        "libtbb": "Apache-2.0", "libtiff": "libtiff", "libwebp": "BSD-3-Clause", "libyaml-cpp": "MIT", "libzstd": "BSD-3-Clause",
        "nlohmann-json3": "MIT", "zlib1g": "Zlib"}
OTHER_SPDX = {"clip-bpe": "MIT", "cuda-runtime": "LicenseRef-NVIDIA-CUDA-Toolkit"}


def license_expression(texts):
    """Returns the SPDX expression of a wheel that has these license files."""
    found = {"Apache-2.0"}
    for name in (text.stem for text in texts if text.name != "LICENSE"):
        if name in OTHER_SPDX:
            found.add(OTHER_SPDX[name])
        elif known := [start for start in SPDX if name.startswith(start)]:
            found.update(SPDX[max(known, key=len)].split(" AND "))
        else:
            sys.exit(f"assemble_wheel.py: {name} is in the wheel, but SPDX names no license for it")
    return " AND ".join(sorted(found))


def licenses(package, build, folder):
    """Copies the licenses of Tessera, of the distribution's packages that are in the wheel, and of CUDA's runtime."""
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "LICENSE", folder)
    for file in (ROOT / "configs").rglob("LICENSE*"):  # of vocabularies
        shutil.copy(file, folder / f"{file.parent.name}.txt")
    files = {source for _, source in package.carried.values()}
    archives = re.findall(r"\S+/lib(?:opencv_\w+|archive)\.a", (build / "build.ninja").read_text())
    owners = set(COMPILED_IN)
    for file in sorted({*map(str, files), *archives}):
        for name in (file, "/usr" + file, file.removeprefix("/usr")):
            found = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True).stdout
            if found:
                owners.add(found.split(":")[0])
                break
        else:
            sys.exit(f"assemble_wheel.py: {file} is in the wheel, but belongs to no package, so its license is unknown")
    for owner in sorted(owners):
        text = pathlib.Path("/usr/share/doc") / owner / "copyright"
        if text.is_file():
            shutil.copy(text, folder / f"{owner}.txt")
        elif owner not in COMPILED_IN:
            sys.exit(f"assemble_wheel.py: {text} does not exist, but {owner} is in the wheel")
    for text in package.torch.parent.glob("nvidia_cuda_runtime-*.dist-info/**/License.txt"):
        shutil.copy(text, folder / "cuda-runtime.txt")


def pyarrow_series():
    """Returns the pyarrow version series that libtessera_arrow.so needs. Only scripts/setup.sh states it."""
    return re.search(r"^arrow_version=(\d+\.\d+)", (ROOT / "scripts/setup.sh").read_text(), re.M)[1]


def long_description():
    """Returns README.md without images and relative links, which would lead nowhere on an index's page."""
    text = re.sub(r"!\[[^\]]*\]\((?!\w+:)[^)]+\)\n*", "", (ROOT / "README.md").read_text(encoding="utf-8"))
    return re.sub(r"\[([^\]]+)\]\((?!\w+:)[^)]+\)", r"\1", text)


def metadata(dist, version, series, tag):
    from tessera._programs import PROGRAMS
    following = f"{series.split('.')[0]}.{int(series.split('.')[1]) + 1}"
    files = sorted((dist / "licenses").iterdir())
    texts = "".join(f"License-File: {file.name}\n" for file in files)
    (dist / "METADATA").write_text(f"""Metadata-Version: 2.4
Name: tessera
Version: {version}
Summary: Trains fine-grained image-text models: programs, operators and data loader on PyTorch
Keywords: clip,contrastive learning,image-text models,pytorch,webdataset
Classifier: Development Status :: 4 - Beta
Classifier: Environment :: GPU :: NVIDIA CUDA :: 13
Classifier: Intended Audience :: Science/Research
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C++
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Typing :: Typed
License-Expression: {license_expression(files)}
{texts}Requires-Python: >=3.10
Requires-Dist: numpy
Requires-Dist: torch >={series}, <{following}
Provides-Extra: parquet
Requires-Dist: pyarrow =={pyarrow_series()}.* ; extra == "parquet"
Provides-Extra: export
Requires-Dist: onnx ; extra == "export"
Requires-Dist: onnxscript ; extra == "export"
Requires-Dist: onnxruntime ; extra == "export"
Requires-Dist: tokenizers ; extra == "export"
Provides-Extra: mteb
Requires-Dist: mteb[image] >=2, <3 ; extra == "mteb"
Description-Content-Type: text/markdown

{long_description()}""", encoding="utf-8")
    (dist / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: tessera\nRoot-Is-Purelib: false\nTag: {tag}\n")
    (dist / "entry_points.txt").write_text("[console_scripts]\n" + "".join(f"{name} = tessera._programs:main\n" for name in PROGRAMS))
    (dist / "top_level.txt").write_text("tessera\n")


def write_wheel(stage, out, dist):
    files = sorted(f for f in stage.rglob("*") if f.is_file())
    record = dist / "RECORD"
    lines = []
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        def add(name, data, executable=False):
            entry = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))  # a fixed date, so that the same files make the same wheel
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (0o100755 if executable else 0o100644) << 16
            archive.writestr(entry, data)
        for file in files:
            data, name = file.read_bytes(), file.relative_to(stage).as_posix()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}")
            add(name, data, data[:4] == b"\x7fELF")
        name = record.relative_to(stage).as_posix()
        add(name, "\n".join([*lines, f"{name},,", ""]))


def main():
    build, torch, out = (pathlib.Path(argument).resolve() for argument in sys.argv[1:])
    sys.path.insert(0, str(ROOT / "python"))
    from tessera import _library
    from tessera._version import wheel_name
    stage = build / "wheel/stage"
    shutil.rmtree(stage, ignore_errors=True)
    package = Package(stage / "tessera", torch)
    fill(package, build)
    package.check_symbols()
    portable_elf.main("check", *map(str, package.binaries()))
    series = _library.made_for(package.folder / "lib/libtessera.so")
    wheel = out / wheel_name(series)
    _, version, tag = wheel.stem.split("-", 2)
    dist = stage / f"tessera-{version}.dist-info"
    licenses(package, build, dist / "licenses")
    metadata(dist, version, series, tag)
    out.mkdir(parents=True, exist_ok=True)
    write_wheel(stage, wheel, dist)
    size = wheel.stat().st_size
    installed = sum(f.stat().st_size for f in stage.rglob("*") if f.is_file())
    print(f"== {wheel}: {size / 1e6:.1f} MB, installed {installed / 1e6:.0f} MB, with {len(package.carried)} libraries of the distribution")
    if size > LIMIT:
        sys.exit(f"assemble_wheel.py: the wheel is larger than {LIMIT / 1e6:.0f} MB")


if __name__ == "__main__":
    main()

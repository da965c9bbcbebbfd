# shellcheck shell=bash
# The PyTorch series that Tessera is built for. Sets torch_series, torch_version and build_suffix, which the names of build folders end with.
# The default is the oldest supported series. It moves to the next one, and the list loses its first line, when PyTorch no longer has a
# release of the series for a Python that Tessera supports (docs/python.md).
torch_series=${TESSERA_TORCH:-2.11}
case $torch_series in
  2.11) torch_version=2.11.0 ;;
  2.12) torch_version=2.12.1 ;;
  2.13) torch_version=2.13.0 ;;
  2.14) torch_version=2.14.1 ;;
  2.15) torch_version=2.15.0 ;;
  *) echo "${0##*/}: TESSERA_TORCH is $torch_series, expected a series from 2.11 to 2.15" >&2; exit 2 ;;
esac
build_suffix=
[ "$torch_series" = 2.11 ] || build_suffix=-torch$torch_series

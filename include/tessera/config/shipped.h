#pragma once

#include <string>

/// The configurations that ship with Tessera: configs/ of the source tree, PREFIX/share/tessera/configs of an installation.
namespace tessera::config {

/// The folder they lie in: beside the running program where that is installed, else in the source tree it was built from, else
/// under the prefix it was configured for. Empty if none of these is there.
std::string shipped_folder();

/// Returns the file that `name` means: `name` itself where there is such a file, else the shipped configuration of that name. The
/// ending .yaml may be left out, and a shipped one may be named with or without configs/ in front. Throws UserError with the
/// places that were searched and the nearest name.
std::string find_configuration(const std::string& name, const std::string& shipped = shipped_folder());

/// Text that lists the shipped recipes, one a line: the name and what the first line of the file says of it.
std::string list_configurations(const std::string& shipped = shipped_folder());

}  // namespace tessera::config

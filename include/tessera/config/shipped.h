#pragma once

#include <string>

/// The configurations that ship with Tessera: configs/ of the source tree, PREFIX/share/tessera/configs of an installation.
namespace tessera::config {

/// Returns the folder that holds them: next to the running program if it is installed, else in the source tree it was built
/// from, else under the prefix it was configured for. Empty if none of these exists.
std::string shipped_folder();

/// Returns the file that `name` refers to: `name` itself if such a file exists, else the shipped configuration of that name. The
/// ending .yaml may be left out, and a shipped one may be named with or without configs/ in front. Throws UserError with the
/// places that were searched and the nearest name.
std::string find_configuration(const std::string& name, const std::string& shipped = shipped_folder());

/// Returns text that lists the shipped recipes, one per line: the name and the first line of the file, which describes it.
std::string list_configurations(const std::string& shipped = shipped_folder());

}  // namespace tessera::config

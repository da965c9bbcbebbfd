#pragma once

#include <string>

/// The configurations that ship with Tessera. They are in configs/ of the source tree or in PREFIX/share/tessera/configs of an
/// installation.
namespace tessera::config {

/// Returns the folder of the shipped configurations: next to the running program if it is installed, else in the source tree that it was
/// built from, else under the installation prefix that the build was configured for. Returns an empty string if none of these exists.
std::string shipped_folder();

/// Returns the path of a page of the documentation (docs/), which is next to the shipped configurations.
std::string documentation(const std::string& page);

/// Returns the path of the shipped file of CLIP's byte pairs. Throws UserError if the shipped configurations lack it.
std::string clip_vocabulary_file();

/// Returns the file that `name` refers to: `name` itself if such a file exists, else the shipped configuration of that name. A recipe may
/// be named with a slash or an underscore, for example sparc/vitb16 or sparc_vitb16. The ending .yaml is optional, and so is configs/ at
/// the start of the name of a shipped configuration. If nothing is found, throws UserError with the places that were searched and the
/// nearest name.
std::string find_configuration(const std::string& name, const std::string& shipped = shipped_folder());

/// Returns the name of the configuration in a file, which is also the name of its runs. For a shipped recipe the name includes the folder:
/// sparc_vitb16 for configs/sparc/vitb16.yaml. For any other file it is the file's name without the ending.
std::string configuration_name(const std::string& file, const std::string& shipped = shipped_folder());

/// Returns a list of the shipped recipes as text, grouped by folder. Each recipe has a line with its name and its description, which is the
/// first line of the recipe's file.
std::string list_configurations(const std::string& shipped = shipped_folder());

}  // namespace tessera::config

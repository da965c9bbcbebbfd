#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/open_clip/parameters.h"

/// The flags of OpenCLIP's open_clip_train and their counterparts in Tessera. This one table is the basis of the answers to such
/// flags on the trainer's command line, of --from-open-clip, and of the table in docs/from_open_clip.md.
namespace tessera::tools::open_clip {

/// How many words follow a flag.
enum class Words { none, one, several };

/// Settings of Tessera, each KEY=VALUE as --set takes it.
using Settings = std::vector<std::string>;

struct Flag {
  std::string name;                  // the parameter's name; the flag is --name with hyphens
  Words words = Words::one;
  std::string standard;              // the default as Python prints it
  std::string key;                   // the setting that takes the value unchanged; empty: see `here`
  std::string here;                  // the counterpart in Tessera, in Markdown; empty: the setting `key`
  std::string difference;            // what differs, or why there is no counterpart; empty: nothing
  std::function<Settings(const Parameters&)> convert = {};  // makes the settings if the value is not taken unchanged
  std::function<bool(const Parameters&)> matters = {};       // whether the difference concerns a run with these parameters
  bool of_model = false;             // whether the settings depend on the model; for a whole run, recipe.cpp makes them with the model

  /// The flag as it is written, such as "--train-data".
  std::string option() const;
  /// The counterpart in Tessera, in Markdown.
  std::string counterpart() const;
  /// Whether `difference` concerns a run with these parameters: `matters` says so, or the flag has no counterpart and is given.
  bool differs(const Parameters& parameters) const;
  /// Returns the settings that this flag becomes, given all parameters; empty if there is nothing to set.
  Settings settings(const Parameters& parameters) const;
};

/// All flags of open_clip_train, in its own order.
const std::vector<Flag>& flags();

/// Returns the flag with this parameter name, or nullptr.
const Flag* find_flag(const std::string& name);

/// Returns the number of weight updates per epoch as open_clip_train counts them; 0 if the number of samples is not known.
std::int64_t steps_per_epoch(const Parameters& parameters);

/// Returns how open_clip_train treats the training data of a run: "webdataset", "csv" or "synthetic".
std::string dataset_type(const Parameters& parameters);

/// Returns one line for each open_clip_train flag among `extra`, the words of a command line that belong to no option of Tessera;
/// empty if there is no such flag. `rest` receives the words that are neither such a flag nor a value of one.
std::string answer_to_flags(const std::vector<std::string>& extra, std::vector<std::string>& rest);

/// Returns the table of docs/from_open_clip.md in Markdown.
std::string flag_table();

}  // namespace tessera::tools::open_clip

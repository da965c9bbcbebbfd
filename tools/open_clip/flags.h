#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/foreign/open_clip_run.h"

/// The flags of OpenCLIP's open_clip_train and their counterparts in Tessera. The trainer uses this table to reply to such flags on its
/// command line and to convert runs with --from-open-clip. docs/from_open_clip.md shows the same table.
namespace tessera::tools::open_clip {

/// The number of words that follow a flag.
enum class Words { none, one, several };

using Parameters = OpenClipParameters;

/// Settings of Tessera. Each is KEY=VALUE, as --set takes it.
using Settings = std::vector<std::string>;

struct Flag {
  std::string name;                  // the parameter's name; the flag is --name with hyphens
  Words words = Words::one;
  std::string standard;              // the default as Python prints it
  std::string key;                   // the setting that gets the flag's value unchanged; if empty, the fields `here` and `convert` apply
  std::string here;                  // the flag's counterpart in Tessera, as Markdown; if empty, the counterpart is the setting `key`
  std::string difference;            // what differs, or why there is no counterpart; empty if nothing differs
  std::function<Settings(const Parameters&)> convert = {};  // returns the flag's settings; if unset, `key` gets the flag's value unchanged
  std::function<bool(const Parameters&)> matters = {};       // returns whether `difference` applies to a run with these parameters
  bool of_model = false;             // whether the settings depend on the model; if so, recipe.cpp makes them itself when it converts a run

  /// Returns the flag as it is written on a command line, such as "--train-data".
  std::string option() const;
  /// Returns the flag's counterpart in Tessera, as Markdown.
  std::string counterpart() const;
  /// Returns whether `difference` applies to a run with these parameters. If the function `matters` is set, it decides this. Otherwise the
  /// difference applies if the flag has no counterpart and the flag's value differs from the default.
  bool differs(const Parameters& parameters) const;
  /// Returns the settings that replace this flag in a run with these parameters; empty if there is nothing to set.
  Settings settings(const Parameters& parameters) const;
};

/// All flags of open_clip_train, in its own order.
const std::vector<Flag>& flags();

/// Returns the flag with this parameter name, or nullptr.
const Flag* find_flag(const std::string& name);

/// Returns a run's parameters; those that are not given have open_clip_train's defaults.
Parameters with_defaults(std::map<std::string, std::string> given);

/// Returns the number of weight updates per epoch as open_clip_train counts them; 0 if the number of samples is not known.
std::int64_t steps_per_epoch(const Parameters& parameters);

/// Returns how open_clip_train treats the training data of a run: "webdataset", "csv" or "synthetic".
std::string dataset_type(const Parameters& parameters);

/// `extra` contains the words of a command line that belong to no option of Tessera. Returns one line for each flag of open_clip_train
/// among these words, with the flag's counterpart in Tessera. Returns an empty text if there is no such flag. `rest` receives the words
/// that are neither flags of open_clip_train nor values of these flags.
std::string answer_to_flags(const std::vector<std::string>& extra, std::vector<std::string>& rest);

/// Returns the table of docs/from_open_clip.md in Markdown.
std::string flag_table();

}  // namespace tessera::tools::open_clip

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/open_clip/parameters.h"

/// OpenCLIP's open_clip_train beside Tessera: one table of its flags, from which come the answers to them on trainer's command line,
/// --from-open-clip, and the table of docs/from_open_clip.md.
namespace tessera::tools::open_clip {

/// How many words follow a flag.
enum class Words { none, one, several };

/// Settings of ours, KEY=VALUE each as --set takes them.
using Settings = std::vector<std::string>;

struct Flag {
  std::string name;                  // of the parameter; the flag is --name with hyphens
  Words words = Words::one;
  std::string standard;              // its default as Python prints it
  std::string key;                   // the setting that takes the value as it is; empty: see `here`
  std::string here;                  // what it is here, in Markdown; empty: the setting `key`
  std::string difference;            // what differs, or why there is no counterpart; empty: nothing
  std::function<Settings(const Parameters&)> convert = {};  // where the value is not taken as it is
  std::function<bool(const Parameters&)> matters = {};       // whether the difference concerns a run of these parameters
  bool of_model = false;             // whether the settings follow from the model's own, so that those of a whole run are made there

  /// "--train-data".
  std::string option() const;
  /// Markdown for the column of what it is here.
  std::string counterpart() const;
  /// Whether a run of these parameters must be told of `difference`: it says so, or gives a flag that has no counterpart.
  bool differs(const Parameters& parameters) const;
  /// What the parameters mean for this flag; none where there is nothing to set.
  Settings settings(const Parameters& parameters) const;
};

/// All flags of open_clip_train, in its own order.
const std::vector<Flag>& flags();

/// The flag of a parameter's name, or nullptr.
const Flag* find_flag(const std::string& name);

/// Steps of an epoch as open_clip_train counts them, updates of the weights; 0 where the number of samples is not known.
std::int64_t steps_per_epoch(const Parameters& parameters);

/// What the training data of a run are to open_clip_train: "webdataset", "csv" or "synthetic".
std::string dataset_type(const Parameters& parameters);

/// The lines that answer to flags of open_clip_train on a command line, one for each flag; empty where `extra`, the words that belong
/// to no option of ours, has none of them. `rest` gets the words that are none of its flags and of no flag either.
std::string answer_to_flags(const std::vector<std::string>& extra, std::vector<std::string>& rest);

/// The table of docs/from_open_clip.md, Markdown.
std::string flag_table();

}  // namespace tessera::tools::open_clip

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera::tools::open_clip {

/// The parameters of a run of OpenCLIP's open_clip_train by name ("train_data"). Values have the form in which Python prints them: "0.001",
/// "None", "True", "[0.5, 0.5]". Parameters that are not given have open_clip_train's defaults.
class Parameters {
 public:
  explicit Parameters(std::map<std::string, std::string> given);

  /// Returns the value. Throws std::out_of_range for a name that open_clip_train does not have.
  const std::string& text(const std::string& name) const;
  /// Whether the value is set, which means that it is not None, False, an empty text, or an empty list or dictionary.
  bool has(const std::string& name) const;
  /// Whether the value differs from the default.
  bool changed(const std::string& name) const;
  /// number() returns the value as a number, and whole() as a whole number. For any other value, both throw a UserError that names the
  /// parameter.
  double number(const std::string& name) const;
  std::int64_t whole(const std::string& name) const;
  /// Returns the value as YAML: tuples become lists, None becomes null, and texts that YAML would read as something else are quoted.
  std::string yaml(const std::string& name) const;

  /// Returns the given parameters that are neither flags of open_clip_train 3.3.0 nor values that open_clip_train computes itself.
  std::vector<std::string> unknown() const;

  /// Sets a value. The name may also be world_size or csv_rows (the number of rows in the training table), which have no flag.
  void set(const std::string& name, const std::string& value) { values_[name] = value; }

 private:
  std::map<std::string, std::string> values_;
};

/// Parses params.txt, which open_clip_train writes into a run's log folder: lines of `name: value`. `file` is the file's name for messages.
/// Throws UserError for a line of another form, or if no line is a parameter of open_clip_train.
Parameters parse_params(const std::string& text, const std::string& file);

/// Returns a YAML scalar that YAML reads as exactly this text.
std::string yaml_text(const std::string& text);

/// Converts a Python literal to YAML on one line: ('a', 1, None) becomes ["a", 1, null].
std::string yaml_of_python(const std::string& literal);

}  // namespace tessera::tools::open_clip

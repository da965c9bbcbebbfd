#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera::tools::open_clip {

/// The parameters of a run of OpenCLIP's open_clip_train by name ("train_data"), as Python prints their values: "0.001", "None",
/// "True", "[0.5, 0.5]". What is not given has the default that open_clip_train gives it.
class Parameters {
 public:
  explicit Parameters(std::map<std::string, std::string> given);

  /// The value. Throws std::out_of_range for a name that is none of open_clip_train's.
  const std::string& text(const std::string& name) const;
  /// Whether the value says something: neither None, False, empty, nor an empty list or dictionary.
  bool has(const std::string& name) const;
  /// Whether the value is another one than the default.
  bool changed(const std::string& name) const;
  /// Throw UserError naming the parameter where the value is no such number.
  double number(const std::string& name) const;
  std::int64_t whole(const std::string& name) const;
  /// The value as YAML: tuples become lists, None null, texts that YAML would read as something else are quoted.
  std::string yaml(const std::string& name) const;

  /// Names that were given and that open_clip_train 3.3.0 neither has a flag for nor works out.
  std::vector<std::string> unknown() const;

  /// Sets a value, or one that has no flag: world_size, or csv_rows, the rows of the training table.
  void set(const std::string& name, const std::string& value) { values_[name] = value; }

 private:
  std::map<std::string, std::string> values_;
};

/// Reads what open_clip_train writes into params.txt of a run's log folder, lines of `name: value`. `file` is what messages name.
/// Throws UserError: a line of another kind, or no parameter of open_clip_train.
Parameters parse_params(const std::string& text, const std::string& file);

/// A text as a YAML scalar that reads as this text.
std::string yaml_text(const std::string& text);

/// A Python literal as YAML, on one line: ('a', 1, None) becomes ["a", 1, null].
std::string yaml_of_python(const std::string& literal);

}  // namespace tessera::tools::open_clip

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

/// Runs of OpenCLIP's open_clip_train, as their params.txt describes them.
namespace tessera {

/// The parameters of a run by name ("train_data"). Values have the form in which Python prints them: "0.001", "None", "True", "[0.5, 0.5]".
class OpenClipParameters {
 public:
  /// `defaults` are the values of the parameters that are not given.
  explicit OpenClipParameters(std::map<std::string, std::string> given, std::map<std::string, std::string> defaults = {});

  /// Returns the value. Throws std::out_of_range for a parameter that is not given and has no default.
  const std::string& text(const std::string& name) const;
  bool is_given(const std::string& name) const { return values_.contains(name); }
  /// Whether the value is set, which means that it is not missing, None, False, an empty text, or an empty list or dictionary.
  bool has(const std::string& name) const;
  /// Whether the value differs from the default.
  bool changed(const std::string& name) const;
  /// number() returns the value as a number, and whole() as a whole number. For any other value, both throw a UserError that names the
  /// parameter.
  double number(const std::string& name) const;
  std::int64_t whole(const std::string& name) const;
  /// Returns the value as YAML: tuples become lists, None becomes null, and texts that YAML would read as something else are quoted.
  std::string yaml(const std::string& name) const;

  /// Returns the given parameters that have no default and are no values that open_clip_train computes itself.
  std::vector<std::string> unknown() const;

  /// Sets a value. The name may also be world_size or csv_rows (the number of rows in the training table), which have no flag.
  void set(const std::string& name, const std::string& value) { values_[name] = value; }

 private:
  std::map<std::string, std::string> values_, defaults_;
};

/// Parses params.txt, which open_clip_train writes into a run's log folder: lines of `name: value`. `file` is the file's name for messages.
/// Throws UserError for a line of another form.
std::map<std::string, std::string> parse_open_clip_params(std::string text, const std::string& file);

/// Returns a YAML scalar that YAML reads as exactly this text.
std::string yaml_text(const std::string& text);

/// Returns the name of the run's model with "/" replaced by "-": ViT-B/32 becomes ViT-B-32.
std::string open_clip_model_name(const OpenClipParameters& run);

/// Returns the run's pretrained tag as OpenCLIP looks it up: in lower case, with "-" replaced by "_".
std::string open_clip_tag_name(const OpenClipParameters& run);

/// Returns what open_clip_config.json would say about the run's model: `model_cfg` with what the run's force_* parameters change, and
/// `preprocess_cfg` with its image_* parameters. Throws UserError naming the parameter if the model is unknown or a value is of the wrong
/// type.
nlohmann::json open_clip_run_config(const OpenClipParameters& run);

}  // namespace tessera

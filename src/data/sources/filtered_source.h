#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// Settings of a filter that chooses samples by the fields of their side files. Every source except a mixture has these settings in
/// addition to its own. In a mixture, each of the mixed sources has these settings.
struct FilterSettings {
  std::optional<std::string> filter;
  std::optional<config::FilePath> filter_ids;
  std::string id_field = "uid";
};

template <class Visitor>
void fields(Visitor& v, FilterSettings& s) {
  v("filter", s.filter,
    "condition on side fields that samples must meet, as in width >= 224 and similarity > 0.28 and language == 'en'; null: none "
    "(docs/data.md)");
  v("filter_ids", s.filter_ids,
    "file with the ids of the samples to use, a .npy of 128-bit numbers as DataComp publishes them; null: all samples");
  v("id_field", s.id_field, "side field that holds a sample's id, 32 hexadecimal digits, for filter_ids");
}

/// A source's own settings and those of its filter.
template <class Settings>
struct Filtered : Settings, FilterSettings {};

template <class Visitor, class Settings>
void fields(Visitor& v, Filtered<Settings>& s) {
  fields(v, static_cast<Settings&>(s));
  fields(v, static_cast<FilterSettings&>(s));
}

/// If the source reads files, checks that its path is set. Then validates the source's own settings.
template <class Settings>
std::optional<config::Problem> validate(const Filtered<Settings>& s) {
  if constexpr (requires { s.path.items; })
    if (std::ranges::all_of(s.path.items, [](const std::string& name) { return name.empty(); }))
      return config::Problem{"path", "is not set; expected a file, a list of files, or a pattern such as train-{00000..00004}.*"};
  if constexpr (requires { s.path.searched; s.path.name; })
    if (s.path.empty()) return config::Problem{"path", "is not set; expected a folder"};
  if constexpr (config::HasValidate<Settings>) return validate(static_cast<const Settings&>(s));
  return std::nullopt;
}

/// Returns a source with the samples that pass the filter; without a filter, returns the source itself. A source with random access
/// is scanned once, without its images if possible (FieldSource). A stream is filtered while it is read. If `stream_samples` does
/// not say how many samples pass, the stream is read once at the start to count them. Throws UserError if the filter cannot be
/// parsed, if it uses a field that no sample has, or if no sample passes.
std::shared_ptr<Source> filtered(std::shared_ptr<Source> source, const FilterSettings& settings,
                                 std::optional<std::int64_t> stream_samples = std::nullopt);

/// Registers a source, and adds the settings of a filter to those of the source.
template <class Settings, class Make>
void add_source(SourceRegistry& list, const char* name, const char* help, const Make& make) {
  list.add<Filtered<Settings>>(name, help, [make](const Filtered<Settings>& settings) {
    std::optional<std::int64_t> stream_samples;
    if constexpr (requires { settings.stream.samples; }) stream_samples = settings.stream.samples;
    return filtered(make(settings), settings, stream_samples);
  });
}

}  // namespace tessera

#include "src/data/loading/caption_chooser.h"

#include <algorithm>

#include <tessera/base/text.h>

namespace tessera {
namespace {

constexpr const char* kCaptionsField = "captions";

const TextField* find_field(const std::vector<TextField>& fields, const std::string& name) {
  const auto found = std::ranges::find(fields, name, &TextField::name);
  return found == fields.end() ? nullptr : &*found;
}

TextField captions_field(const Sample& sample) {
  return {{sample.captions, /*is_list=*/true}, kCaptionsField};
}

std::vector<std::string> named_anywhere(const CaptionViewSettings& settings) {
  std::vector<std::string> names = settings.fields.value_or(std::vector<std::string>());
  for (const CaptionSlots& slots : settings.slots)
    if (slots.fields) names.insert(names.end(), slots.fields->begin(), slots.fields->end());
  return names;
}

bool leaves_fields_unnamed(const CaptionViewSettings& settings) {
  const bool every_slot = !settings.slots.empty() &&
                          std::ranges::all_of(settings.slots, [](const auto& slots) { return slots.fields.has_value(); });
  return !settings.fields && !every_slot;
}

}  // namespace

bool is_usable(const std::string& text) {
  return !strip(text).empty() && is_utf8(text);
}

std::optional<config::Problem> validate(const CaptionViewSettings& settings) {
  const bool sentences = settings.choice == "sentences";
  if (sentences && settings.slots.empty())
    return config::Problem{"slots", "is not set; expected for example [{count: 8, max_sentences: 3}], or choice: all or "
                                    "random with a count"};
  if (sentences && settings.count > 0)
    return config::Problem{"count", "is for the choices all and random; with choice: sentences the slots have counts"};
  if (!sentences && settings.count == 0)
    return config::Problem{"count", concat("is not set; expected the number of captions per image for choice: ", settings.choice)};
  if (!sentences && !settings.slots.empty())
    return config::Problem{"slots", concat("are for choice: sentences; with choice: ", settings.choice, " set only count")};
  return std::nullopt;
}

std::int64_t captions_per_image(const CaptionViewSettings& settings) {
  return settings.choice == "sentences" ? CaptionSampler(settings).count() : settings.count;
}

CaptionChooser::CaptionChooser(const CaptionViewSettings& settings)
    : settings_(settings), named_(named_anywhere(settings)), uses_unnamed_(leaves_fields_unnamed(settings)) {}

std::string CaptionChooser::describe_fields() const {
  return uses_unnamed_ ? "any text field or caption" : join_names(named_);
}

std::vector<TextField> CaptionChooser::unnamed_fields(const Sample& sample) const {
  if (settings_.choice == "sentences" && !sample.texts.empty()) return sample.texts;
  return {captions_field(sample)};
}

std::vector<TextField> CaptionChooser::fields_of(const Sample& sample) const {
  std::vector<TextField> out;
  if (uses_unnamed_) out = unnamed_fields(sample);
  for (const std::string& name : named_) {
    if (find_field(out, name) != nullptr) continue;
    if (const TextField* field = find_field(sample.texts, name))
      out.push_back(*field);
    else if (name == kCaptionsField)
      out.push_back(captions_field(sample));
  }
  return out;
}

std::vector<TextField> CaptionChooser::usable_fields(const Sample& sample) const {
  std::vector<TextField> fields = fields_of(sample);
  for (TextField& field : fields) std::erase_if(field.texts, [](const std::string& text) { return !is_usable(text); });
  std::erase_if(fields, [](const TextField& field) { return field.texts.empty(); });
  return fields;
}

bool CaptionChooser::has_undecodable(const Sample& sample) const {
  return std::ranges::any_of(fields_of(sample), [](const TextField& field) {
    return std::ranges::any_of(field.texts, [](const std::string& text) { return !is_utf8(text); });
  });
}

// Returns the names of the default fields: those that the settings name outside `slots`, or else the sample's own fields.
std::vector<std::string> CaptionChooser::names_for(const Sample& sample) const {
  if (settings_.fields) return *settings_.fields;
  std::vector<std::string> names;
  for (const TextField& field : unnamed_fields(sample)) names.push_back(field.name);
  return names;
}

std::vector<std::string> CaptionChooser::choose(const Sample& sample, Random random) const {
  const std::vector<TextField> fields = usable_fields(sample);
  CaptionSamplerSettings of_sample = settings_;
  of_sample.fields = names_for(sample);
  if (settings_.choice == "sentences")
    return CaptionSampler(std::move(of_sample)).sample(fields, [&] { return random.uniform(); });
  std::vector<std::string> out;
  for (const std::string& name : *of_sample.fields)
    if (const TextField* field = find_field(fields, name)) out.insert(out.end(), field->texts.begin(), field->texts.end());
  if (settings_.choice == "random") random.shuffle(out);
  out.resize(static_cast<std::size_t>(settings_.count));
  return out;
}

}  // namespace tessera

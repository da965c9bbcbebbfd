#include "src/training/memory/example_page.h"

#include "src/base/clock.h"
#include "src/base/host.h"
#include "src/base/printable.h"
#include "src/report/cards.h"
#include "src/report/page.h"
#include <tessera/base/error.h>
#include <tessera/base/version.h>

namespace tessera {
namespace {

std::string tokens_text(const TextExample& text) {
  return concat(text.tokens, text.tokens == 1 ? " token" : " tokens", text.cut ? ", cut" : "");
}

// Returns a name such as "captions 2 of 8".
std::string name_in_view(const std::string& view, std::size_t number, std::size_t count) {
  return concat(view, " ", number + 1, " of ", count);
}

constexpr const char* kAbsent = "absent: the sample has no text for it";

std::string name_of(const TrainingExample& example) {
  return example.source.empty() || example.key.starts_with(example.source)
             ? example.key
             : concat(example.source, ": ", example.key);
}

std::string line_of(const std::string& name, const std::string& view, const TextExample& text) {
  return concat("  ", name, "  ", view, ", ", tokens_text(text), ": \"", printable(text.text), "\"\n");
}

nlohmann::json text_part(const std::string& name, const TextExample& text) {
  return {text.text + (text.cut ? "\u2026" : ""), concat(name, ", ", tokens_text(text))};
}

nlohmann::json make_sheet(const TrainingExample& example) {
  nlohmann::json images = nlohmann::json::array(), texts = nlohmann::json::array();
  for (const auto& [view, image] : example.images) images.push_back(report::image_part(image, view));
  for (const auto& [view, text] : example.texts) texts.push_back(text_part(view, text));
  for (const auto& [view, several] : example.several)
    for (std::size_t k = 0; k < several.size(); ++k) {
      const std::string name = name_in_view(view, k, several.size());
      texts.push_back(several[k].tokens > 0 ? text_part(name, several[k]) : nlohmann::json{"", concat(name, ", ", kAbsent)});
    }
  if (!example.problem.empty()) texts.push_back({"skipped: " + example.problem, ""});
  texts.push_back({"", name_of(example)});
  return {{"images", images}, {"texts", texts}};
}

}  // namespace

std::string to_text(const std::vector<TrainingExample>& examples) {
  std::string out;
  for (const TrainingExample& example : examples) {
    const std::string name = printable(name_of(example));
    if (!example.problem.empty()) out += concat("  ", name, "  skipped: ", printable(example.problem), "\n");
    for (const auto& [view, text] : example.texts)
      out += line_of(name, view, text);
    for (const auto& [view, texts] : example.several)
      for (std::size_t k = 0; k < texts.size(); ++k) {
        const std::string place = name_in_view(view, k, texts.size());
        out += texts[k].tokens > 0 ? line_of(name, place, texts[k])
                                   : concat("  ", name, "  ", place, ", ", kAbsent, "\n");
      }
  }
  return out;
}

std::string example_page(const std::vector<TrainingExample>& examples, const std::string& title,
                         const std::string& data, const std::string& numbers) {
  auto sheets = nlohmann::json::array();
  for (const TrainingExample& example : examples) sheets.push_back(make_sheet(example));
  nlohmann::json plan = {{"title", ""}, {"cards", nlohmann::json::array()}};
  if (!numbers.empty()) plan["cards"].push_back({{"type", "text"}, {"text", numbers}});
  const std::string note = concat("Samples of ", data, " as training reads them: images after augmentation, texts as decoded by the tokenizer. "
                                  "Check that captions match their images.");
  const std::vector<std::pair<std::string, std::string>> facts = {
      {"Date", utc_now()}, {"Version", version_line()}, {"Command", command_line()}};
  return report::page({{"kind", "cards"},
                       {"title", title},
                       {"facts", facts},
                       {"sections",
                        {plan, {{"title", "Samples"}, {"note", note}, {"cards", {{{"type", "image"}, {"layout", "samples"}, {"items", sheets}}}}}}}});
}

}  // namespace tessera

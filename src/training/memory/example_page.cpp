#include "src/training/memory/example_page.h"

#include "src/base/clock.h"
#include "src/base/host.h"
#include "src/base/printable.h"
#include "src/report/html.h"
#include "src/report/picture.h"
#include <tessera/base/error.h>
#include <tessera/base/version.h>

namespace tessera {
namespace {

constexpr const char* kExampleStyle =
    "<style>.samples{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(320px,100%),1fr));gap:12px}"
    ".samples .card{margin:0}.samples img{width:112px;height:112px;object-fit:contain;margin:0 6px 6px 0;"
    "image-rendering:auto}.samples p{margin:6px 0;overflow-wrap:break-word}</style>";

std::string tokens_text(const TextExample& text) {
  return concat(text.tokens, text.tokens == 1 ? " token" : " tokens", text.cut ? ", cut" : "");
}

// Returns a name such as "captions 2 of 8".
std::string name_in_view(const std::string& view, std::size_t number, std::size_t count) {
  return concat(view, " ", number + 1, " of ", count);
}

constexpr const char* kAbsent = "absent: the sample has no text for it";

std::string paragraph_of(const std::string& name, const TextExample& text) {
  return concat("<p>", report::escape(text.text), text.cut ? "\u2026" : "", "</p><p class=\"soft\">", report::escape(name),
                ", ", tokens_text(text), "</p>");
}

std::string name_of(const TrainingExample& example) {
  return example.source.empty() || example.key.starts_with(example.source)
             ? example.key
             : concat(example.source, ": ", example.key);
}

std::string line_of(const std::string& name, const std::string& view, const TextExample& text) {
  return concat("  ", name, "  ", view, ", ", tokens_text(text), ": \"", printable(text.text), "\"\n");
}

std::string facts_of_page(const std::string& numbers) {
  const std::string plan =
      numbers.empty() ? "" : "<pre class=\"card\" style=\"white-space:pre-wrap\">" + report::escape(numbers) + "</pre>";
  return report::fact_card({{"Date", utc_now()}, {"Version", version_line()}, {"Command", command_line()}}) + plan;
}

std::string card_of(const TrainingExample& example) {
  std::string html = "<div class=\"card\">";
  for (const auto& [view, picture] : example.pictures)
    html += report::img(picture, concat(view, " of ", name_of(example)));
  for (const auto& [view, text] : example.texts) html += paragraph_of(view, text);
  for (const auto& [view, texts] : example.several)
    for (std::size_t k = 0; k < texts.size(); ++k) {
      const std::string name = name_in_view(view, k, texts.size());
      html += texts[k].tokens > 0 ? paragraph_of(name, texts[k])
                                  : concat("<p class=\"soft\">", name, ", ", kAbsent, "</p>");
    }
  if (!example.problem.empty()) html += "<p><b>skipped:</b> " + report::escape(example.problem) + "</p>";
  return concat(html, "<p class=\"soft\">", report::escape(name_of(example)), "</p></div>");
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
  std::string cards;
  for (const TrainingExample& example : examples) cards += card_of(example);
  return report::page(title, kExampleStyle,
                      concat("<h1>", report::escape(title), "</h1>", facts_of_page(numbers), "<h2>Samples</h2><p>Samples of ", report::escape(data),
                             " as training reads them: images after augmentation, texts as decoded by the tokenizer. "
                             "Check that captions match their images.</p><div class=\"samples\">",
                             cards, "</div>"));
}

}  // namespace tessera

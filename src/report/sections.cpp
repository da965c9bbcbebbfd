#include "src/report/sections.h"

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>

#include "src/report/group_sheet.h"
#include "src/report/html.h"
#include "src/report/picture.h"
#include "src/report/scatter_chart.h"
#include "src/report/token_sheet.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::report {
namespace {

std::string name_of(const TaskPictures& pictures, std::int64_t index) {
  if (index < 0 || index >= static_cast<std::int64_t>(pictures.class_names.size())) return "none";
  return pictures.class_names[static_cast<std::size_t>(index)];
}

Color color_of(const std::vector<Color>& colors, std::int64_t index) {
  return index < std::ssize(colors) ? colors[static_cast<std::size_t>(index)] : palette_color(index);
}

std::string tag(const std::string& text, bool good) {
  return concat("<span class=\"tag ", good ? "good" : "bad", "\">", escape(text), "</span>");
}

/// Returns a line with the name of the true class, after a check mark for a right answer or a cross for a wrong one. A class named after a
/// color gets a dot of this color.
std::string truth_line(const std::string& name, bool right) {
  const std::optional<Color> color = color_in(name);
  return concat("<div class=\"truth\"><span class=\"sign ", right ? "good\" title=\"right\">\u2713" : "bad\" title=\"wrong\">\u2717",
                "</span>", color ? concat("<i class=\"dot\" style=\"background:", css_color(*color), "\"></i>") : "",
                escape(name), "</div>");
}

/// `color` replaces the accent color.
std::string bar(const std::string& name, double share, bool right, const std::optional<Color>& color = std::nullopt) {
  return concat("<div class=\"bar", right ? " right" : "", "\"><span>", escape(name), "</span><span>",
                fixed(100 * share, 1), "%</span><div><i style=\"width:", fixed(100 * share, 1), "%",
                color ? ";background:" + css_color(*color) : "", "\"></i></div></div>");
}

std::string figure(const std::string& picture, const std::string& caption, const std::string& box = "box") {
  return concat("<figure><div class=\"", box, "\">", picture, "</div><figcaption>", caption, "</figcaption></figure>");
}

std::string rank_tag(std::int64_t rank) {
  if (rank < 0) return tag("no right item", false);
  return rank == 0 ? tag("found first", true) : tag(concat("right item at place ", rank + 1), false);
}

/// Returns the name of an image's file; under the pointer, the whole name with its folders.
std::string name_text(const std::string& name) {
  return concat("<span title=\"", escape(name), "\">", breakable(name.substr(name.find_last_of('/') + 1)), "</span>");
}

/// Returns the image over its name or, if it has none, over `instead`.
std::string named_figure(const Image& image, const std::string& name, const std::string& instead = "image",
                         const std::string& box = "box") {
  return figure(img(image, name.empty() ? instead : name), name.empty() ? instead : name_text(name), box);
}

/// Returns the image with a heat map over it, a caption in HTML, and the scale of the colors.
std::string heat_figure(const Image& image, const std::vector<float>& values, std::int64_t rows, std::int64_t columns,
                        const std::string& alt, const std::string& caption) {
  return figure(img(heat_map(image, values, rows, columns), alt), caption + heat_scale(values));
}

/// Returns the tokens of a caption as HTML. A token is darker if the slot attends to it more. The tokens of one word are not separated.
std::string shaded_tokens(const std::vector<std::string>& tokens, const std::vector<float>& weights) {
  const float greatest = std::max(1e-12F, weights.empty() ? 0 : *std::max_element(weights.begin(), weights.end()));
  std::string html = "<div class=\"tokens\">";
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::string text(strip(tokens[t]));
    const bool special = tokens[t].empty();
    if (special || (tokens[t].starts_with(' ') && !text.empty())) html += ' ';
    html += concat("<span style=\"background:color-mix(in srgb,var(--heat) ", fixed(100.0 * weights[t] / greatest, 0),
                   "%,transparent)\">",
                   special        ? "&middot;"
                   : text.empty() ? " "
                                  : escape(text),
                   "</span>");
  }
  return html + "</div>";
}

std::string text_sheet(const RetrievalSheet& sheet) {
  const bool has_truth = !sheet.query_image.pixels.empty();
  std::string html = concat("<div class=\"sheet\"><header><q>", escape(sheet.query_text), "</q>",
                            has_truth ? rank_tag(sheet.rank) : "", "</header><div class=\"row\">");
  if (has_truth) html += named_figure(sheet.query_image, sheet.query_name, "ground truth", "box right");
  for (std::size_t i = 0; i < sheet.items.size(); ++i) {
    const RetrievalSheet::Item& item = sheet.items[i];
    html += figure(
        img(item.image, concat("result ", i + 1)),
        concat("#", i + 1, " &middot; ", fixed(item.score, 3), item.text.empty() ? "" : "<br>" + name_text(item.text)),
        item.right ? "box right" : "box wrong");
  }
  return html + "</div></div>";
}

std::string image_sheet(const RetrievalSheet& sheet) {
  std::string html = concat(
      "<div class=\"sheet\"><div class=\"two\">", named_figure(sheet.query_image, sheet.query_name, "query"),
      "<div><header><span class=\"soft\">best captions</span>", rank_tag(sheet.rank), "</header><ol class=\"found\">");
  for (const RetrievalSheet::Item& item : sheet.items) {
    html += concat("<li", item.right ? " class=\"right\"" : "", "><span>", escape(item.text), "</span><small>",
                   fixed(item.score, 3), "</small></li>");
  }
  html += "</ol>";
  const bool found = std::any_of(sheet.items.begin(), sheet.items.end(), [](const auto& item) { return item.right; });
  if (!found && !sheet.truth.empty()) {
    html += concat("<p class=\"soft\" style=\"margin:8px 0 0\">its own: ", escape(sheet.truth.front()), "</p>");
  }
  return html + "</div></div></div>";
}

}  // namespace

std::string class_values(const TaskPictures& pictures) {
  if (pictures.class_values.empty()) return "";
  if (pictures.class_values.size() == 1) {
    const auto& [name, value] = pictures.class_values.front();
    return "<div class=\"numbers\">" + number_card(fixed(100 * value, 1) + "%", concat(pictures.class_measure, ", ", name)) +
           "</div>";
  }
  std::string html = concat("<h3>", pictures.class_measure, " by ", pictures.class_kind,
                            "</h3><div class=\"card bars columns\">");
  for (const auto& [name, value] : pictures.class_values) {
    html += "<div style=\"break-inside:avoid;padding:1.5px 0\">" + bar(name, value, false, color_in(name)) + "</div>";
  }
  return html + "</div>";
}

std::string confusion_table(const TaskPictures& pictures) {
  if (pictures.confusion.empty()) return "";
  std::ostringstream html;
  html << "<h3>Confusion</h3><p class=\"soft\">Rows: true class; columns: predicted class; number of images.</p>"
       << "<div class=\"card scroll fit\"><table class=\"confusion\"><tr><th></th>";
  for (const std::string& name : pictures.class_names) html << "<th class=\"top\">" << escape(name) << "</th>";
  html << "</tr>";
  for (std::size_t r = 0; r < pictures.confusion.size(); ++r) {
    std::int64_t total = 0;
    for (const std::int64_t count : pictures.confusion[r]) total += count;
    html << "<tr><th class=\"side\">" << escape(pictures.class_names[r]) << "</th>";
    for (std::size_t c = 0; c < pictures.confusion[r].size(); ++c) {
      const std::int64_t count = pictures.confusion[r][c];
      const double share = total > 0 ? static_cast<double>(count) / static_cast<double>(total) : 0;
      html << "<td style=\"background:color-mix(in srgb," << (r == c ? "var(--good)" : "var(--bad)") << " "
           << fixed(75 * share, 0) << "%,transparent)\">" << (count > 0 ? std::to_string(count) : "") << "</td>";
    }
    html << "</tr>";
  }
  html << "</table></div>";
  return html.str();
}

std::string classification_grid(const TaskPictures& pictures, const std::vector<ClassificationExample>& examples) {
  std::string html = "<div class=\"grid examples\">";
  for (const ClassificationExample& example : examples) {
    const std::string truth = name_of(pictures, example.label);
    const bool right = !example.best.empty() && example.best.front().first == example.label;
    html += "<div class=\"example\">" + named_figure(example.image, example.name, "", "") + "<div class=\"bars\">" +
            truth_line(truth, right);
    for (const auto& [index, share] : example.best)
      html += bar(name_of(pictures, index), share, index == example.label, color_in(name_of(pictures, index)));
    html += "</div></div>";
  }
  return html + "</div>";
}

std::string classification_examples(const TaskPictures& pictures) {
  if (pictures.mistakes.empty() && pictures.classification.empty()) return "";
  std::string html =
      "<p class=\"soft\">Next to each image is its true class: \u2713 if the text of this class is the nearest, \u2717 if another one "
      "is. Below it are the nearest classes with the model's probabilities among all classes; the true one is outlined.</p>";
  if (!pictures.mistakes.empty())
    html += "<h3>Mistakes</h3><p class=\"soft\">The mistakes in which the model is most confident, the most confident first.</p>" +
            classification_grid(pictures, pictures.mistakes);
  if (!pictures.classification.empty())
    html += "<h3>Examples</h3><p class=\"soft\">Spread evenly over the data.</p>" +
            classification_grid(pictures, pictures.classification);
  return html;
}

std::string query_sheets(const TaskPictures& pictures) {
  if (pictures.queries.empty()) return "";
  std::string html =
      "<h3>Queries</h3><p class=\"soft\">The images nearest to each text, with their cosines and names. The right ones "
      "are not "
      "known.</p>";
  for (const RetrievalSheet& sheet : pictures.queries) html += text_sheet(sheet);
  return html;
}

std::string retrieval_sheets(const TaskPictures& pictures) {
  if (pictures.retrieval.empty()) return "";
  std::string by_text, by_image;
  for (const RetrievalSheet& sheet : pictures.retrieval)
    (sheet.text_to_image ? by_text : by_image) += sheet.text_to_image ? text_sheet(sheet) : image_sheet(sheet);
  std::string html;
  if (!by_text.empty()) {
    html +=
        "<h3>Text to image</h3><p class=\"soft\">The five nearest images of each caption, with their cosines; the right one has a "
        "green box. Of 32 captions of the first batch, these are the ones whose image ranks lowest, failures first.</p>" +
        by_text;
  }
  if (!by_image.empty()) {
    html +=
        "<h3>Image to text</h3><p class=\"soft\">The five nearest captions of each image; its own have a green box. Of 32 images "
        "spread over the data, these are the ones whose captions rank lowest, failures first.</p>" +
        by_image;
  }
  return html;
}

std::string caption_sheets(const TaskPictures& pictures) {
  if (pictures.captions.empty()) return "";
  std::string html =
      "<h3>Captions</h3><p class=\"soft\">The decoder's captions for images spread over the data, their CIDEr-D, and the images' own "
      "captions.</p>";
  for (const CaptionExample& example : pictures.captions) {
    html += concat("<div class=\"sheet\"><div class=\"two\">", named_figure(example.image, example.name),
                   "<div><header><q>", escape(example.written), "</q><small>", fixed(example.score, 2),
                   "</small></header><ol class=\"found\">");
    for (const std::string& text : example.truth) html += concat("<li class=\"right\"><span>", escape(text), "</span></li>");
    html += "</ol></div></div></div>";
  }
  return html;
}

std::string segmentation_overlays(const TaskPictures& pictures) {
  if (pictures.segmentation.empty()) return "";
  const std::int64_t background = pictures.background_class;
  const std::vector<Color> colors = class_colors(pictures.class_names);
  std::string html =
      "<h3>Overlays</h3><p class=\"soft\">Each image with its true mask, if it has one, and its predicted mask, in the "
      "colors of the "
      "legend below it; classes named after a color have that color. IoU: the mean over the image's classes.</p><div "
      "class=\"grid "
      "overlays\">";
  for (const SegmentationExample& example : pictures.segmentation) {
    std::set<std::int64_t> shown;
    for (const auto* mask : {&example.target, &example.prediction}) {
      for (const std::uint8_t value : *mask) {
        if (value != 255 && value != background) shown.insert(value);
      }
    }
    html += "<div class=\"overlay\"><div class=\"three\">" + named_figure(example.image, example.name);
    if (!example.target.empty())
      html += figure(img(color_by_class(example.image, example.target, background, colors), "ground truth"),
                     "ground truth");
    const std::string iou = concat(" &middot; IoU ", example.iou < 0 ? "none" : fixed(100 * example.iou, 1) + "%");
    html += figure(img(color_by_class(example.image, example.prediction, background, colors), "prediction"),
                   "prediction" + (example.target.empty() ? "" : iou)) +
            "</div><div class=\"legend\">";
    for (const std::int64_t index : shown) {
      html += concat("<span><i style=\"background:", css_color(color_of(colors, index)), "\"></i>",
                     escape(name_of(pictures, index)),
                     "</span>");
    }
    html += "</div></div>";
  }
  return html + "</div>";
}

std::string slot_sheets(const TaskPictures& pictures) {
  if (pictures.slots.empty()) return "";
  std::string html =
      "<h3>Slots</h3><p class=\"soft\">What single slots attend to: red patches of the image (the scale is below) and "
      "dark words of the "
      "caption; a middle dot is a token without text. The number is the cosine between the image's slot and the "
      "caption's.</p>";
  for (const SlotExample& example : pictures.slots) {
    html += "<div class=\"sheet\"><div class=\"slots\">" + named_figure(example.image, example.name);
    for (const SlotExample::Slot& slot : example.slots)
      html += "<div>" +
              heat_figure(example.image, slot.image, example.rows, example.columns, concat("slot ", slot.index),
                          concat("slot ", slot.index, " &middot; ", fixed(slot.cosine, 2))) +
              shaded_tokens(example.tokens, slot.text) + "</div>";
    html += "</div></div>";
  }
  return html;
}

std::string token_sheets(const TaskPictures& pictures) {
  if (pictures.tokens.empty()) return "";
  std::string html =
      "<h3>Tokens</h3><p class=\"soft\">The most active tokens of each image, larger if more active, and maps of "
      "single words, scaled "
      "from the patch where a word is least active to the one where it is most active.</p>";
  for (const TokenExample& example : pictures.tokens) {
    html += "<div class=\"sheet\"><div class=\"readable\">" + named_figure(example.image, example.name) +
            "<div class=\"cloud\">" + token_cloud(example.tokens) + "</div>";
    for (const TokenExample::Map& map : example.maps)
      html += heat_figure(example.image, map.patches, example.rows, example.columns, map.word, escape(map.word));
    html += "</div></div>";
  }
  return html;
}

std::string map_sheets(const TaskPictures& pictures) {
  if (pictures.maps.empty()) return "";
  std::string html = concat("<h3>", pictures.map_title, "</h3><p class=\"soft\">", escape(pictures.map_rule),
                            " The colors of each map reach from its smallest to its greatest value.</p>");
  for (const MapExample& example : pictures.maps) {
    html += concat("<div class=\"sheet\">",
                   example.text.empty() ? "" : "<header><q>" + escape(example.text) + "</q></header>",
                   "<div class=\"slots\">", named_figure(example.image, example.name));
    for (const MapExample::Map& map : example.maps)
      html += heat_figure(example.image, map.patches, example.rows, example.columns, map.text,
                          escape(map.text) + (map.cosine ? " &middot; " + fixed(*map.cosine, 3) : ""));
    html += "</div></div>";
  }
  return html;
}

std::string scatter_charts(const TaskPictures& pictures) {
  if (pictures.scatters.empty()) return "";
  std::string html =
      "<h3>Map of features</h3><p class=\"soft\">Dots are images, squares are texts. Points near each other have similar embeddings, as "
      "far as two dimensions can show it. Images and texts are each centered on their own mean. Distances between far clusters of "
      "t-SNE have no meaning.</p><div class=\"grid charts\">";
  for (const ScatterChart& chart : pictures.scatters)
    html += concat("<div class=\"card\"><h3 style=\"margin:0 0 8px\">", escape(chart.title), "</h3>", svg_scatter(chart),
                   "</div>");
  return html + "</div>";
}

std::string group_sheets(const TaskPictures& pictures) {
  if (pictures.groups.empty()) return "";
  std::string html =
      "<h3>Groups</h3><p class=\"soft\">Captions with each word in the color of its group and annotated phrases underlined; below them "
      "the weight of each word in each group (a middle dot is a token without text). If the image tower has groups, too, the image "
      "is shown in their colors, which are unrelated to the caption's.</p>";
  for (const GroupExample& example : pictures.groups)
    html += "<div class=\"sheet\" style=\"color:var(--ink)\">" + group_picture(example) + "</div>";
  return html;
}

}  // namespace tessera::report

#include <algorithm>

#include "src/report/group_sheet.h"
#include "src/report/html.h"
#include "src/report/picture.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::report {
namespace {

constexpr double kSheetWidth = 900, kMargin = 10, kPictureSide = 120;
constexpr double kLetter = 8.4, kLine = 26, kBox = 20;                            // sizes of the parts of the caption
constexpr double kLabels = 58, kCellHeight = 16, kWidestCell = 30, kNumber = 26;  // sizes of the parts of the matrix

struct Drawing {
  std::string svg;
  double height = 0;
};

double width_of_letters(const std::string& text) {
  constexpr unsigned kContinuationMask = 0xC0, kContinuation = 0x80;
  const auto count = std::count_if(text.begin(), text.end(), [](char letter) {
    return (static_cast<unsigned char>(letter) & kContinuationMask) != kContinuation;
  });
  return kLetter * static_cast<double>(count);
}

std::string rectangle(double x, double y, double width, double height, std::int64_t group, double opacity) {
  return concat("<rect x=\"", fixed(x, 1), "\" y=\"", fixed(y, 1), "\" width=\"", fixed(width, 1), "\" height=\"",
                fixed(height, 1), "\" fill=\"", css_color(group), "\" fill-opacity=\"", fixed(opacity, 2), "\"/>");
}

std::string picture_at(double x, const Image& picture) {
  return concat("<image x=\"", x, "\" y=\"", kMargin, "\" width=\"", kPictureSide, "\" height=\"", kPictureSide,
                "\" style=\"image-rendering:", picture.height < kPictureSide ? "pixelated" : "auto", "\" href=\"",
                data_uri(picture), "\"/>");
}

/// Draws the words in lines that start at `left`, from `top` downwards.
Drawing colored_words(const std::vector<GroupExample::Token>& tokens, double left, double top) {
  Drawing out;
  double x = left, y = top;
  bool begins = false;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::string text(strip(tokens[t].text));
    begins = begins || tokens[t].text.starts_with(' ');  // the space before a word may be a separate token
    if (text.empty()) continue;
    // The tokens of one word stay in one line.
    double word = width_of_letters(text);
    for (std::size_t next = t + 1; next < tokens.size() && !tokens[next].text.starts_with(' '); ++next)
      word += width_of_letters(tokens[next].text);
    if (begins && x > left) x += kLetter;
    if (begins && x + word > kSheetWidth - kMargin) {
      x = left;
      y += kLine;
    }
    const double width = width_of_letters(text);
    out.svg += rectangle(x, y, width, kBox, tokens[t].group, 0.5);
    out.svg += concat("<text x=\"", fixed(x, 1), "\" y=\"", fixed(y + 15, 1), "\" textLength=\"", fixed(width, 1),
                      "\" lengthAdjust=\"spacingAndGlyphs\" style=\"font-family:monospace;font-size:14px;",
                      "fill:currentColor\">", escape(text), "</text>");
    if (tokens[t].in_phrase)
      out.svg += concat("<line x1=\"", fixed(x, 1), "\" x2=\"", fixed(x + width, 1), "\" y1=\"", fixed(y + kBox + 2, 1),
                        "\" y2=\"", fixed(y + kBox + 2, 1), "\" stroke=\"currentColor\" stroke-width=\"1.5\"/>");
    x += width;
    begins = false;
  }
  out.height = y + kLine - top;
  return out;
}

/// Draws the matrix of groups by tokens with its top left corner at (left, top).
Drawing matrix(const std::vector<GroupExample::Token>& tokens, double left, double top) {
  Drawing out;
  if (tokens.empty()) return out;
  const std::size_t groups = tokens.front().weights.size();
  const double first = left + kNumber, grid = top + kLabels;
  const double cell =
      std::min(kWidestCell, (kSheetWidth - kMargin - kLabels - first) / static_cast<double>(tokens.size()));
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const std::string text(strip(tokens[t].text));
    const double x = first + cell * static_cast<double>(t);
    out.svg += concat("<text transform=\"translate(", fixed(x + cell / 2, 1), " ", fixed(grid - 4, 1),
                      ") rotate(-45)\" style=\"font-size:11px;fill:currentColor\">",
                      text.empty() ? "\u00b7" : escape(text), "</text>");
    for (std::size_t k = 0; k < groups; ++k)
      out.svg += rectangle(x, grid + kCellHeight * static_cast<double>(k), cell - 1, kCellHeight - 1,
                           static_cast<std::int64_t>(k), tokens[t].weights[k]);
  }
  for (std::size_t k = 0; k < groups; ++k)
    out.svg +=
        concat("<text x=\"", fixed(left, 1), "\" y=\"", fixed(grid + kCellHeight * (static_cast<double>(k) + 0.75), 1),
               "\" style=\"font-size:11px;fill:", css_color(static_cast<std::int64_t>(k)), "\">", k, "</text>");
  out.height = kLabels + kCellHeight * static_cast<double>(groups);
  return out;
}

Drawing drawn(const GroupExample& example) {
  Drawing out;
  double left = kMargin;
  const auto add_picture = [&](const Image& picture) {
    out.svg += picture_at(left, picture);
    left += kPictureSide + kMargin;
  };
  if (!example.image.empty()) add_picture(example.image);
  if (!example.picture_groups.empty()) add_picture(color_by_class(example.image, example.picture_groups, -1));
  const Drawing words = colored_words(example.tokens, left, kMargin);
  const Drawing weights = matrix(example.tokens, left, kMargin + words.height);
  out.svg += words.svg + weights.svg;
  out.height = std::max(kPictureSide, words.height + weights.height) + 2 * kMargin;
  return out;
}

}  // namespace

std::string group_picture(const GroupExample& example) {
  const Drawing drawing = drawn(example);
  return concat("<svg viewBox=\"0 0 ", kSheetWidth, " ", fixed(drawing.height, 1), "\">", drawing.svg, "</svg>");
}

std::string group_sheet(const std::vector<GroupExample>& examples) {
  std::string parts;
  double height = 0;
  for (const GroupExample& example : examples) {
    const Drawing drawing = drawn(example);
    parts += concat("<g transform=\"translate(0 ", fixed(height, 1), ")\">", drawing.svg, "</g>\n");
    height += drawing.height;
  }
  return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", kSheetWidth, " ", fixed(height, 1),
                "\" width=\"", kSheetWidth, "\" height=\"", fixed(height, 1),
                "\" color=\"#222\" font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
                parts, "</svg>\n");
}

}  // namespace tessera::report

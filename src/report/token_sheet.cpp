#include <algorithm>
#include <cmath>

#include "src/report/html.h"
#include "src/report/picture.h"
#include "src/report/token_sheet.h"
#include <tessera/base/error.h>

namespace tessera::report {
namespace {

constexpr double kCloudWidth = 300, kCloudHeight = 180;
constexpr double kLargest = 40, kSmallest = 9;  // font sizes, before the words are scaled down to fit into the cloud
constexpr double kPicture = 150, kGap = 14;
constexpr std::size_t kColumns = 2;

struct PlacedWord {
  double x = 0, y = 0;  // center of the word
  double width = 0, height = 0;
  double size = 0;
};

/// Estimates the width of a text in units of its font size. The estimate is generous, because the reader's font is unknown.
double width_of(const std::string& text) {
  double width = 0.2;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if ((byte & 0xC0) != 0x80) width += byte < 0x80 ? 0.58 : byte < 0xE0 ? 0.65 : 1.05;  // counts each character once, at its first byte
  }
  return width;
}

bool overlap(const PlacedWord& a, const PlacedWord& b) {
  return std::abs(a.x - b.x) < (a.width + b.width) / 2 && std::abs(a.y - b.y) < (a.height + b.height) / 2;
}

/// Moves the word outwards along a spiral until it overlaps no other word. Returns whether there is room for it.
bool place(PlacedWord& word, const std::vector<PlacedWord>& others) {
  for (double angle = 0; angle < 300; angle += 0.2) {
    word.x = kCloudWidth / 2 + 0.9 * angle * std::cos(angle) * kCloudWidth / kCloudHeight;
    word.y = kCloudHeight / 2 + 0.9 * angle * std::sin(angle);
    const bool inside = std::abs(word.x - kCloudWidth / 2) <= (kCloudWidth - word.width) / 2 &&
                        std::abs(word.y - kCloudHeight / 2) <= (kCloudHeight - word.height) / 2;
    if (inside && std::none_of(others.begin(), others.end(), [&](const auto& other) { return overlap(word, other); }))
      return true;
  }
  return false;
}

/// Places the words as large as possible so that all of them fit.
std::vector<PlacedWord> arranged(const std::vector<TokenExample::Token>& tokens) {
  const double greatest = std::max(1e-12, tokens.front().weight);
  std::vector<PlacedWord> words;
  for (double scale = 1; words.size() < tokens.size(); scale *= 0.9) {
    words.clear();
    for (const TokenExample::Token& token : tokens) {
      const double share = std::clamp(token.weight / greatest, 0.0, 1.0);
      PlacedWord word;
      word.size = scale * (kSmallest + (kLargest - kSmallest) * share);
      word.width = word.size * width_of(token.text);
      word.height = 1.1 * word.size;
      if (!place(word, words)) break;
      words.push_back(word);
    }
  }
  return words;
}

/// Returns the cloud's <text> elements.
std::string cloud_texts(const std::vector<TokenExample::Token>& tokens) {
  const std::vector<PlacedWord> words = arranged(tokens);
  std::string svg;
  for (std::size_t i = 0; i < words.size(); ++i)
    svg += concat("<text x=\"", fixed(words[i].x, 1), "\" y=\"", fixed(words[i].y + 0.35 * words[i].size, 1),
                  "\" text-anchor=\"middle\" style=\"font-size:", fixed(words[i].size, 1), "px;fill:currentColor\">",
                  escape(tokens[i].text), "</text>");
  return svg;
}

}  // namespace

std::string token_cloud(const std::vector<TokenExample::Token>& tokens) {
  if (tokens.empty()) return "";
  return concat("<svg viewBox=\"0 0 ", kCloudWidth, " ", kCloudHeight, "\">", cloud_texts(tokens), "</svg>");
}

std::string token_sheet(const std::vector<TokenExample>& examples) {
  constexpr double kCellWidth = kPicture + kCloudWidth + 3 * kGap, kCellHeight = kCloudHeight + kGap;
  const std::size_t rows = (examples.size() + kColumns - 1) / kColumns;
  const double width = kCellWidth * static_cast<double>(std::min(examples.size(), kColumns));
  const double height = kCellHeight * static_cast<double>(rows);
  std::string svg =
      concat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, " ", height, "\" width=\"", width,
             "\" height=\"", height, "\" color=\"#222\" font-family=\"sans-serif\">\n",
             "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const Image& picture = examples[i].image;
    svg += concat("<g transform=\"translate(", kCellWidth * static_cast<double>(i % kColumns), " ",
                  kCellHeight * static_cast<double>(i / kColumns), ")\"><image x=\"", kGap, "\" y=\"",
                  (kCellHeight - kPicture) / 2, "\" width=\"", kPicture, "\" height=\"", kPicture,
                  "\" style=\"image-rendering:", picture.height < kPicture ? "pixelated" : "auto", "\" href=\"",
                  data_uri(picture), "\"/>");
    if (!examples[i].tokens.empty())
      svg += concat("<g transform=\"translate(", kPicture + 2 * kGap, " ", kGap / 2, ")\">",
                    cloud_texts(examples[i].tokens), "</g>");
    svg += "</g>\n";
  }
  return svg + "</svg>\n";
}

}  // namespace tessera::report

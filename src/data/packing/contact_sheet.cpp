#include <algorithm>
#include <sstream>
#include <string>
#include <unordered_map>

#include <c10/util/Exception.h>
#include <opencv2/imgproc.hpp>

#include "src/data/packing/contact_sheet.h"
#include "src/data/tokenizers/normalization.h"

namespace tessera {
namespace {

constexpr int kMargin = 10;
constexpr int kLines = 4;
constexpr int kLineHeight = 14;
constexpr double kFontSize = 0.38;
constexpr int kFont = cv::FONT_HERSHEY_SIMPLEX;

int text_width(const std::string& text) {
  int baseline = 0;
  return cv::getTextSize(text, kFont, kFontSize, 1, &baseline).width;
}

// ASCII spellings of letters and punctuation marks for which removing an accent is wrong or impossible: German, Nordic, Polish, ...
const std::unordered_map<char32_t, const char*>& spellings() {
  static const std::unordered_map<char32_t, const char*> map = {
      {U'\u00E4', "ae"}, {U'\u00F6', "oe"}, {U'\u00FC', "ue"}, {U'\u00C4', "Ae"}, {U'\u00D6', "Oe"}, {U'\u00DC', "Ue"},
      {U'\u00DF', "ss"}, {U'\u1E9E', "SS"}, {U'\u00E6', "ae"}, {U'\u00C6', "AE"}, {U'\u0153', "oe"}, {U'\u0152', "OE"},
      {U'\u00F8', "o"},  {U'\u00D8', "O"},  {U'\u0142', "l"},  {U'\u0141', "L"},  {U'\u0111', "d"},  {U'\u0110', "D"},
      {U'\u00F0', "d"},  {U'\u00D0', "D"},  {U'\u00FE', "th"}, {U'\u00DE', "Th"}, {U'\u0131', "i"},  {U'\u00A0', " "},
      {U'\u2018', "'"},  {U'\u2019', "'"},  {U'\u201A', "'"},  {U'\u201C', "\""}, {U'\u201D', "\""}, {U'\u201E', "\""},
      {U'\u00AB', "\""}, {U'\u00BB', "\""}, {U'\u2013', "-"},  {U'\u2014', "-"},  {U'\u2026', "..."}};
  return map;
}

struct Drawable {
  std::string text;
  std::int64_t lost = 0;  // characters replaced by "?"
};

// Converts a text to ASCII, because OpenCV's fonts have no other characters. Characters outside ASCII are spelled in ASCII, lose their
// accents, or become "?".
Drawable drawable(const std::string& text) {
  Drawable out;
  for (const char32_t code : unicode::compose(unicode::decode(text))) {
    const bool accent = code >= 0x300 && code < 0x370;
    if (accent) continue;
    if (const auto found = spellings().find(code); found != spellings().end()) {
      out.text += found->second;
      continue;
    }
    const char32_t letter = unicode::normal_form({&code, 1}, unicode::Form::nfd, unicode::Version::unicode14).front();
    out.text += letter < 0x80 ? static_cast<char>(letter) : '?';
    out.lost += letter < 0x80 ? 0 : 1;
  }
  return out;
}

// Breaks a text between words into at most kLines lines. If the text is longer, the last line ends in "...".
std::vector<std::string> wrap(const std::string& text, int width) {
  std::vector<std::string> lines;
  std::istringstream words(drawable(text).text);
  for (std::string word; words >> word;) {
    if (!lines.empty() && text_width(lines.back() + " " + word) <= width)
      lines.back() += " " + word;
    else
      lines.push_back(word);
  }
  if (lines.size() > kLines) {
    lines.resize(kLines);
    while (!lines.back().empty() && text_width(lines.back() + "...") > width) lines.back().pop_back();
    lines.back() += "...";
  }
  return lines;
}

cv::Mat fit(const Image& image, int cell) {
  const cv::Mat shown(static_cast<int>(image.height), static_cast<int>(image.width), CV_8UC3,
                        const_cast<std::uint8_t*>(image.pixels.data()));  // OpenCV has no views of const data
  const int longest = std::max(shown.rows, shown.cols);
  cv::Mat out;
  if (longest * 2 <= cell) {
    cv::resize(shown, out, {}, cell / longest, cell / longest, cv::INTER_NEAREST);
  } else {
    const double scale = static_cast<double>(cell) / longest;
    cv::resize(
        shown, out,
        {std::max(1, static_cast<int>(shown.cols * scale)), std::max(1, static_cast<int>(shown.rows * scale))}, 0,
        0, scale < 1 ? cv::INTER_AREA : cv::INTER_CUBIC);
  }
  return out;
}

}  // namespace

std::int64_t undrawable_characters(const std::vector<Sample>& samples) {
  std::int64_t count = 0;
  for (const Sample& sample : samples)
    if (!sample.captions.empty()) count += drawable(sample.captions[0]).lost;
  return count;
}

Image contact_sheet(const std::vector<Sample>& samples, std::int64_t columns, std::int64_t cell) {
  TORCH_CHECK(columns > 0 && cell > 0 && cell <= 4096, "contact_sheet: ", columns, " columns of ", cell, " pixels");
  const int side = static_cast<int>(cell);
  const int across = static_cast<int>(std::min<std::int64_t>(columns, static_cast<std::int64_t>(samples.size())));
  const int step_x = side + kMargin;
  const int step_y = side + kLines * kLineHeight + kMargin + 4;
  const int down = across == 0 ? 0 : (static_cast<int>(samples.size()) + across - 1) / across;
  Image sheet{down * step_y + kMargin, across * step_x + kMargin, {}};
  sheet.pixels.assign(static_cast<std::size_t>(sheet.height * sheet.width * 3), 255);
  cv::Mat canvas(static_cast<int>(sheet.height), static_cast<int>(sheet.width), CV_8UC3, sheet.pixels.data());
  for (int i = 0; i < static_cast<int>(samples.size()); ++i) {
    const Sample& sample = samples[static_cast<std::size_t>(i)];
    TORCH_CHECK(!sample.image.empty(), "contact_sheet: sample ", sample.key, " is not decoded");
    const int left = kMargin + i % across * step_x;
    const int top = kMargin + i / across * step_y;
    const cv::Mat shown = fit(sample.image, side);
    shown.copyTo(canvas(
        cv::Rect(left + (side - shown.cols) / 2, top + (side - shown.rows) / 2, shown.cols, shown.rows)));
    if (sample.captions.empty()) continue;
    int baseline = top + side + kLineHeight;
    for (const std::string& line : wrap(sample.captions[0], side)) {
      cv::putText(canvas, line, {left, baseline}, kFont, kFontSize, {40, 40, 40}, 1, cv::LINE_AA);
      baseline += kLineHeight;
    }
  }
  return sheet;
}

}  // namespace tessera

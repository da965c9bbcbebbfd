#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/sample.h>

/// Parts of cards (TaskResult::cards), as configs/page.html draws them. A card has a "type", and may have a "title" and a "note":
///   image, overlay  "items": sheets (below). "layout": the class of the grid that holds them; otherwise each has its own line. "classes" and
///                   "background": the names of the classes of masks, and the index of the background
///   bars            "values": [[name, share]]
///   curve           "charts": [{"title", "xName", "log", "lines": [[name, [x], [y]]]}], or "plots": [{"title", "classes", "points":
///                   [{"x", "y", "class", "is_text", "name"}]}] for points in two dimensions
///   table           "header" and "rows", or "names" and "rows" for the counts of a confusion table
///   text            "text"
/// A sheet has "images" (image_part()) and may have "quote" or "lead" and "tag" and "score" above them, "list" and "after" beside them,
/// "truth", "right" and "bars" for a classification, a "legend" of class indices, a "cloud" of words, "groups" of tokens, and "texts".
namespace tessera::report {

/// Returns the image as a data URI in base64; small images are PNG, larger ones JPEG.
std::string data_uri(const Image& image);

/// Returns an image of a sheet with its file's name and, above the name, a caption.
nlohmann::json image_part(const Image& image, const std::string& name = "", const std::string& caption = "");

/// Returns the image under a map of `values` [rows, columns].
nlohmann::json heat_part(const Image& image, const std::vector<float>& values, std::int64_t rows, std::int64_t columns,
                         const std::string& caption);

/// Returns the image under a mask of class indices [height, width], which have the image's size; 255: ignored.
nlohmann::json mask_part(const Image& image, const std::vector<std::uint8_t>& mask, const std::string& caption);

/// Returns a card of bars, such as the accuracy of each class.
nlohmann::json bars_card(const std::string& title, const std::vector<std::pair<std::string, double>>& values);

/// An image with maps of texts, or of the words of a text.
struct MapExample {
  struct Map {
    std::string text;
    std::optional<double> cosine;  // the cosine of image and text; nullopt for a word
    std::vector<float> patches;    // one value per patch, in row-major order
  };
  Image image;
  std::int64_t rows = 0, columns = 0;  // size of the patch grid
  std::vector<Map> maps;
  std::string name = {};  // the sample's key
  std::string text = {};  // the text whose words the maps show; empty if each map has its own text
};

/// Returns the example as a sheet.
nlohmann::json make_sheet(const MapExample& example);

}  // namespace tessera::report

#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera {

/// Larger pictures are taken for decompression bombs, as Pillow does, unless a setting says otherwise.
inline constexpr std::int64_t kDefaultMaxPixels = 178'956'970;

/// An 8-bit RGB picture, rows top to bottom, channels interleaved.
struct Image {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels;  // [height, width, 3]

  bool empty() const { return pixels.empty(); }
};

/// One object of a picture, where annotations tell.
struct ObjectAnnotation {
  std::int64_t label = -1;             // class index
  std::array<std::int64_t, 4> box{};   // top, left, height, width in pixels
  std::string phrase;                  // its phrase in one of the captions
  std::array<std::int64_t, 2> span{};  // bytes [begin, end) of the phrase in that caption; empty: no caption names it
  std::int64_t caption = 0;            // which caption that is
  std::vector<std::string> negatives{};  // texts that almost describe it
};

/// A caption that is wrong in one respect (SugarCrepe's kinds: replace_obj, replace_att, replace_rel, swap_obj, swap_att,
/// add_obj, add_att).
struct HardNegative {
  std::string kind;
  std::string caption;
};

/// A text of a sample without its name: a text as it stands, or the list of its sentences.
struct FieldText {
  std::vector<std::string> texts;  // one, unless it is a list
  bool is_list = false;
};

/// A text that the data know by a name of their own (the settings `text_fields` of sources).
struct TextField : FieldText {
  std::string name;
};

/// One picture with everything a source knows of it. The picture is either `image` (decoded) or `encoded` (a file's bytes).
struct Sample {
  std::string key;
  Image image;
  std::string encoded;
  std::string no_image;  // of a sample without a picture, what a message says; empty: that there is none
  std::vector<std::string> captions;
  std::vector<TextField> texts;  // that the view `captions` draws its sentences from, in the order of the settings
  std::string summary;
  std::string object_tags;
  std::int64_t label = -1;             // class index for zero-shot classification, -1 = none
  std::string class_name;              // the class as the data write it, where no list of classes makes it an index
  std::vector<std::uint8_t> mask;      // [height, width] class indices of the picture's pixels, 255 = ignored; may be empty
  std::vector<float> depth;            // [height, width] meters from the camera, 0 = unknown; may be empty
  std::vector<ObjectAnnotation> objects;
  std::string bad_boxes;               // what is wrong with a box that the data give, for a message; empty: nothing
  std::vector<float> regions;          // [R, F] row-major
  std::int64_t region_width = 0;       // F
  std::vector<HardNegative> negatives;
  std::string fields;  // of its JSON side file, all of them, as a JSON object; empty: it has none
};

}  // namespace tessera

#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

/// The default limit on the number of pixels of an image, as in Pillow. A larger image counts as a decompression bomb.
inline constexpr std::int64_t kDefaultMaxPixels = 178'956'970;

/// An 8-bit RGB image, rows top to bottom, channels interleaved.
struct Image {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> pixels;  // [height, width, 3]

  bool empty() const { return pixels.empty(); }
};

/// A box: top, left, height and width in pixels.
using Box = std::array<std::int64_t, 4>;

/// One annotated object of an image.
struct ObjectAnnotation {
  std::int64_t label = -1;             // class index
  Box box{};
  std::string phrase;                  // describes the object, usually in the words of a caption
  std::array<std::int64_t, 2> span{};  // bytes [begin, end) of the phrase in a caption; empty: the phrase is not in any caption
  std::int64_t caption = 0;            // index of the caption that `span` refers to
  std::vector<std::string> negatives{};  // hard negatives: texts that almost describe the object
};

/// A caption that is wrong in one respect (SugarCrepe's kinds: replace_obj, replace_att, replace_rel, swap_obj, swap_att,
/// add_obj, add_att).
struct HardNegative {
  std::string kind;
  std::string caption;
};

/// The content of a text field: one unsplit text, or a list of sentences.
struct FieldText {
  std::vector<std::string> texts;  // exactly one, unless is_list
  bool is_list = false;
};

/// A text field with the name it has in the data (the setting `text_fields` of sources).
struct TextField : FieldText {
  std::string name;
};

/// One image with everything a source knows about it. The image is stored either decoded, in `image`, or as the bytes of a file, in
/// `encoded`.
struct Sample {
  std::string key;
  Image image;
  std::string encoded;
  std::string no_image;  // the error message for a sample without an image; empty: the default message
  std::vector<std::string> captions;
  std::vector<TextField> texts;  // fields in the order of the settings; the view `captions` draws its sentences from them
  std::string summary;
  std::string object_tags;
  std::int64_t label = -1;             // class index for zero-shot classification; -1: none
  std::string class_name;              // the class as written in the data, if no list of classes maps it to an index
  std::vector<std::uint8_t> mask;      // [height, width] class indices of the image's pixels, where 255 means ignored; may be empty
  std::vector<float> depth;            // [height, width] meters from the camera, where 0 means unknown; may be empty
  std::vector<ObjectAnnotation> objects;
  std::string bad_boxes;               // error message about the first invalid box; empty: all are valid
  std::vector<float> regions;          // region features [R, F], row-major
  std::int64_t region_width = 0;       // F
  std::vector<HardNegative> negatives;
  std::string fields;  // all fields of the sample's JSON side file, as a JSON object; empty: there is no such file
};

/// Thrown if one sample is corrupt or incomplete. The pipeline skips the sample, counts it by `reason` and reports it.
class SampleError : public std::runtime_error {
 public:
  /// `reason` is a short fixed word for counting (`no_image`, `bad_image`, `no_caption`, `not_utf8`, `truncated`, ...). `key` is the
  /// sample's key, if the source already knows it.
  SampleError(std::string reason, const std::string& text, std::string key = {})
      : std::runtime_error(text), reason_(std::move(reason)), key_(std::move(key)) {}
  const std::string& reason() const { return reason_; }
  const std::string& key() const { return key_; }

 private:
  std::string reason_;
  std::string key_;
};

}  // namespace tessera

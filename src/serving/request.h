#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include <ATen/core/Tensor.h>

#include <tessera/base/error.h>
#include <tessera/preprocessing.h>

namespace tessera::serving {

/// A mistake in a request. `param` names the field, and `status` is the HTTP status.
class RequestError : public std::runtime_error {
 public:
  RequestError(int status, std::string param, const std::string& message)
      : std::runtime_error(message), status_(status), param_(std::move(param)) {}
  int status() const { return status_; }
  const std::string& param() const { return param_; }

 private:
  int status_;
  std::string param_;
};

/// Throws a RequestError with status 400.
template <class... Parts>
[[noreturn]] void bad_request(const std::string& param, const Parts&... parts) {
  throw RequestError(400, param, concat(parts...));
}

/// The most that a request may hold.
struct Limits {
  std::int64_t body_bytes = 32 << 20;
  std::int64_t inputs = 256;       // images and texts
  std::int64_t text_bytes = 8192;  // bytes of one text
  std::int64_t pixels = 50'000'000;  // of one image
};

/// The fields of a request's body. Every function names the field in its message.
class Body {
 public:
  /// Parses a JSON object. Throws RequestError if the text is no JSON object, is nested deeper than 16 levels, or has a field that `known`
  /// does not list.
  Body(std::string_view text, const std::vector<std::string>& known, const Limits& limits);

  bool has(const std::string& field) const { return json_.contains(field) && !json_.at(field).is_null(); }
  const nlohmann::json& at(const std::string& field) const;
  /// Returns a text of at most Limits::text_bytes, or `usual` if the field is absent.
  std::string text(const std::string& field, const std::string& usual) const;
  /// Returns one of `choices`, of which the first is the default.
  std::string choice(const std::string& field, const std::vector<std::string>& choices) const;
  std::int64_t number(const std::string& field, std::int64_t usual, std::int64_t least, std::int64_t most) const;
  bool flag(const std::string& field) const;
  /// Returns the texts of a field that holds one text or a list of texts.
  std::vector<std::string> texts(const std::string& field) const;
  /// Returns the bytes of the image files of a field that holds one image or a list of images. An image is base64, a data URL, or OpenAI's
  /// {"type": "image_url", "image_url": {"url": "data:..."}}.
  std::vector<std::string> images(const std::string& field) const;

  /// An input of /v1/embeddings.
  struct Text {
    std::string text;
  };
  struct ImageFile {
    std::string bytes;
  };
  using Input = std::variant<Text, ImageFile>;
  /// Returns the inputs of a field that holds one text or image, or a list of texts and images. A string that begins with data:image/ is an
  /// image, and so is every string if `all_images`.
  std::vector<Input> inputs(const std::string& field, bool all_images) const;

 private:
  std::string checked(const std::string& field, const nlohmann::json& value) const;
  std::string image_bytes(const std::string& field, const nlohmann::json& value) const;
  std::vector<nlohmann::json> items(const std::string& field) const;

  nlohmann::json json_;
  Limits limits_;
};

/// An image of a request, as the model sees it.
struct DecodedImage {
  at::Tensor pixels;           // uint8 [3, h, w]
  std::array<double, 4> part;  // left, top, right and bottom of what `pixels` show, as shares of the image; beyond 0 or 1 where they are padded
};

/// Decodes and preprocesses an image file. At most as many threads as the machine has cores decode at a time. Throws RequestError that names
/// the field.
DecodedImage decode_input(const std::string& file, const Preprocessing& preprocessing, const Limits& limits, const std::string& field);

}  // namespace tessera::serving

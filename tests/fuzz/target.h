#pragma once
// Declares the fuzz targets and their helpers. A target takes any bytes and checks the contract of its parser: it throws only SampleError
// and UserError, each with a message of one readable line, and its results are consistent. If the contract is broken, the target aborts.

#include <exception>
#include <string>
#include <string_view>

namespace tessera::fuzz {

void fuzz_annotations(std::string_view input);
void fuzz_bucket(std::string_view input);
void fuzz_config(std::string_view input);
void fuzz_features(std::string_view input);
void fuzz_image(std::string_view input);
void fuzz_index(std::string_view input);
void fuzz_listing(std::string_view input);
void fuzz_model_file(std::string_view input);
void fuzz_npy(std::string_view input);
void fuzz_parquet(std::string_view input);
void fuzz_paths(std::string_view input);
void fuzz_pytorch(std::string_view input);
void fuzz_request(std::string_view input);
void fuzz_safetensors(std::string_view input);
void fuzz_tar(std::string_view input);
void fuzz_tokenizer(std::string_view input);
void fuzz_tokenizer_json(std::string_view input);
void fuzz_vocabulary(std::string_view input);
void fuzz_yaml(std::string_view input);

/// Prints `text` and aborts.
[[noreturn]] void broken(const std::string& text);
inline void require(bool holds, const char* text) {
  if (!holds) broken(text);
}

/// Checks an error message for users: it must be one line of UTF-8 without control characters and of a readable length.
void check_message(const std::exception& error);

/// Calls `body`. If `body` throws an `Allowed` exception, catches it and checks its message with check_message().
template <class Allowed, class Body>
void allowing(const Body& body) {
  try {
    body();
  } catch (const Allowed& error) {
    check_message(error);
  }
}

/// A file in memory that holds the current input. Each write replaces the content.
class InputFile {
 public:
  InputFile();
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  void write(std::string_view bytes);
  const std::string& path() const { return path_; }

 private:
  int descriptor_ = -1;
  std::string path_;
};

/// A folder for this process, in memory if /dev/shm exists.
class InputFolder {
 public:
  InputFolder();
  ~InputFolder();
  InputFolder(const InputFolder&) = delete;
  InputFolder& operator=(const InputFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tessera::fuzz

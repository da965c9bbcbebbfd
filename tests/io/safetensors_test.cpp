#include <filesystem>
#include <sys/stat.h>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "src/io/tar.h"
#include "tests/support/error_of.h"
#include "tests/support/full_disk.h"
#include "tests/support/temporary_folder.h"
#include <tessera/io/atomic_file.h>
#include <tessera/io/safetensors.h>

namespace tessera::io {
namespace {

class Safetensors : public FolderTest {
 protected:
  // Returns the error, without the file's path, for a file with this header and `data_bytes` bytes of data.
  std::string error_of_header(const std::string& header, std::size_t data_bytes) {
    const std::uint64_t length = header.size();
    return error_of_bytes(std::string(reinterpret_cast<const char*>(&length), 8) + header +
                          std::string(data_bytes, '\0'));
  }
  std::string error_of_bytes(const std::string& bytes) {
    write_file(path_, bytes);
    const std::string text = error_of([&] { load_safetensors(path_); });
    EXPECT_EQ(text.find('\n'), std::string::npos);
    return text.starts_with(path_ + ": ") ? text.substr(path_.size() + 2) : text;
  }

  const std::string path_ = path("a.safetensors");
};

TEST_F(Safetensors, EveryDtypeAndShapeReadsBackEqual) {
  at::manual_seed(1);
  std::map<std::string, at::Tensor> tensors;
  for (at::ScalarType dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                               at::kChar, at::kByte, at::kBool})
    tensors[std::string("t.") + c10::toString(dtype)] = (at::rand({3, 5}) * 100).to(dtype);
  tensors["scalar"] = at::scalar_tensor(2.5);
  tensors["empty"] = at::empty({3, 0, 2});
  tensors["transposed"] = at::rand({4, 6}).t();
  tensors["odd"] = at::ones({3}, at::kByte);
  const std::map<std::string, std::string> metadata = {{"module", "clip"}, {"note", "line\none \"quoted\" \xc3\xa9"}};
  save_safetensors(path_, tensors, metadata);

  const TensorFile file = load_safetensors(path_);
  EXPECT_EQ(file.metadata, metadata);
  ASSERT_EQ(file.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor& got = file.tensors.at(name);
    EXPECT_EQ(got.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(got, tensor)) << name;
    EXPECT_TRUE(got.is_contiguous()) << name;
  }
}

TEST_F(Safetensors, AFileWithoutTensorsIsValid) {
  save_safetensors(path_, {});
  EXPECT_TRUE(load_safetensors(path_).tensors.empty());
}

TEST_F(Safetensors, DataIsAlignedAndTheHeaderPadded) {
  save_safetensors(path_, {{"a", at::ones({3}, at::kByte)}, {"b", at::ones({1}, at::kDouble)}, {"c", at::ones({1})}});
  const std::string bytes = read_file(path_);
  EXPECT_EQ(static_cast<unsigned char>(bytes[0]) % 8, 0);
  EXPECT_NE(
      bytes.find(
          R"("b":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},"c":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},"a":{)"),
      std::string::npos);
}

TEST_F(Safetensors, BoolBytesOtherThanOneAreTrue) {
  const std::string header = R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  const std::uint64_t length = header.size();
  write_file(path_, std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string("\x00\x02\xff", 3));
  EXPECT_TRUE(at::equal(load_safetensors(path_).tensors.at("m"), at::tensor({0, 1, 1}).to(at::kBool)));
}

TEST_F(Safetensors, InconsistentHeadersAreRefusedWithTheTensorsName) {
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"w":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_EQ(error_of_header(entry("F32", "[2]", "[0,8]"), 8), "no error");
  EXPECT_EQ(error_of_header(entry("F32", "[2]", "[0,8]"), 4),
            "tensor w: its data ends at byte 8 of a data part of 4 bytes (truncated file?)");
  EXPECT_EQ(error_of_header(entry("F32", "[2]", "[0,8]"), 9), "1 bytes at the end belong to no tensor");
  EXPECT_EQ(error_of_header(entry("F32", "[3]", "[0,8]"), 8),
            "tensor w: shape and dtype need 12 bytes, but data_offsets hold 8");
  EXPECT_EQ(error_of_header(entry("F32", "[2]", "[8,0]"), 8), "tensor w: data_offsets run backwards: 8 to 0");
  EXPECT_EQ(error_of_header(entry("F32", "[2]", "[4,12]"), 12), "tensor w: there is a hole of 4 bytes before its data");
  EXPECT_EQ(error_of_header(entry("F32", "[-2]", "[0,8]"), 8),
            "tensor w: shape must hold whole numbers of at least 0, got -2");
  EXPECT_EQ(error_of_header(entry("F32", "[2.0]", "[0,8]"), 8),
            "tensor w: shape must hold whole numbers of at least 0, got 2.0");
  EXPECT_EQ(error_of_header(entry("F32", "[1152921504606846976,16]", "[0,8]"), 8), "tensor w: its shape overflows 64 bits");
  EXPECT_EQ(error_of_header(entry("F32", "[0,1152921504606846976,16]", "[0,0]"), 0), "tensor w: its shape overflows 64 bits");
  EXPECT_EQ(error_of_header(entry("F32", "[18446744073709551615]", "[0,8]"), 8),
            "tensor w: shape must hold whole numbers of at least 0, got 18446744073709551615");
  EXPECT_EQ(error_of_header(entry("F32", "2", "[0,8]"), 8), "tensor w: shape must be a list");
  EXPECT_EQ(error_of_header(entry("F32", "[2]", "[-8,0]"), 8),
            "tensor w: data_offsets must be two whole numbers of at least 0");
  EXPECT_EQ(error_of_header(entry("F32", "[2]", "[0,8,16]"), 8),
            "tensor w: data_offsets must be two whole numbers of at least 0");
  EXPECT_EQ(error_of_header(entry("F31", "[2]", "[0,8]"), 8),
            "tensor w: unknown dtype F31; known: BOOL, U8, I8, I16, F16, BF16, I32, F32, F64 and I64");
  EXPECT_EQ(error_of_header(R"({"w":{"dtype":"F32","shape":[2]}})", 8), "tensor w: its header entry has no data_offsets");
  EXPECT_EQ(error_of_header(R"({"w":3})", 0), "tensor w: its header entry is not a JSON object");
  EXPECT_EQ(
      error_of_header(
          R"({"v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"w":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
          6),
      "tensor w: its data overlaps another tensor's data");
  EXPECT_EQ(
      error_of_header(
          R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
          1),
      "the name w occurs twice in the header");
  EXPECT_EQ(error_of_header(R"({"a\nb":3})", 0), "tensor a\\nb: its header entry is not a JSON object");
  EXPECT_EQ(error_of_header(R"({"__metadata__":{"a":1}})", 0), "__metadata__ a: expected a string");
  EXPECT_EQ(error_of_header(R"({"__metadata__":1})", 0), "__metadata__ is not a JSON object");
  EXPECT_EQ(error_of_header("[]", 0), "not a safetensors file: its header is not a JSON object");
  EXPECT_EQ(error_of_header("{\"w\":", 0), "not a safetensors file: its header is not valid JSON");
  EXPECT_EQ(error_of_header("", 0), "not a safetensors file: its header is not valid JSON");
}

TEST_F(Safetensors, DeeplyNestedHeadersAreRefused) {
  const std::string deep(100'000, '[');
  const std::string closed = deep + std::string(100'000, ']');
  const std::string expected = "not a safetensors file: its header's lists are nested too deeply";
  EXPECT_EQ(error_of_header(R"({"a":{"dtype":"F32","shape":[)" + closed + R"(],"data_offsets":[0,0]}})", 0), expected);
  EXPECT_EQ(error_of_header(deep, 0), expected);
}

TEST_F(Safetensors, ShortAndForeignFilesAreRefused) {
  EXPECT_EQ(error_of_bytes(""), "the file is empty, expected a safetensors file");
  EXPECT_EQ(error_of_bytes("abc"), "not a safetensors file: only 3 bytes long");
  EXPECT_EQ(
      error_of_bytes(std::string(8, '\x7f')),
      "not a safetensors file, or truncated: it announces a header of 9187201950435737471 bytes, but has only 0 more");
}

TEST_F(Safetensors, OtherFileKindsAreRecognizedInTheError) {
  const std::string pytorch = error_of_bytes(std::string("PK\x03\x04") + std::string(20, '\0'));
  EXPECT_TRUE(pytorch.starts_with("is a PyTorch file or another archive, expected a safetensors file; ")) << pytorch;
  EXPECT_NE(pytorch.find("tessera-convert --from open_clip --architecture NAME " + path_), std::string::npos) << pytorch;
  EXPECT_TRUE(error_of_bytes("\x80\x02}q\x01(X\x05\x01\x01").starts_with("is a PyTorch file"));
  EXPECT_EQ(error_of_bytes("version https://git-lfs.github.com/spec/v1\noid sha256:0"),
            "neither safetensors nor a PyTorch file: it begins with the text \"version https://git-lfs.github.com/spec/\": it is a pointer "
            "of Git LFS, not the file: run git lfs pull");
}

TEST_F(Safetensors, AHeaderAboveTheSizeLimitIsRefused) {
  const std::uint64_t length = 100'000'001;
  write_file(path_, std::string(reinterpret_cast<const char*>(&length), 8));
  std::filesystem::resize_file(path_, 8 + length);  // the file is sparse, so it takes no space
  EXPECT_EQ(error_of([&] { load_safetensors(path_); }),
            path_ + ": its header of 100000001 bytes is longer than the limit of 100000000");
}

TEST_F(Safetensors, EveryTruncationIsAnError) {
  save_safetensors(path_, {{"a", at::ones({4})}, {"b", at::ones({2, 2}, at::kByte)}}, {{"k", "v"}});
  const std::string whole = read_file(path_);
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(error_of_bytes(whole.substr(0, size)), "no error") << size;
}

TEST_F(Safetensors, AMissingFileAFolderADeviceAndAPipeAreRefused) {
  const auto error = [](const std::string& path) { return error_of([&] { load_safetensors(path); }); };
  EXPECT_EQ(error(path_), path_ + ": cannot read: No such file or directory");
  EXPECT_EQ(error(folder_.string()), folder_.string() + ": is a folder, expected a file");
  EXPECT_EQ(error("/dev/null"), "/dev/null: is not a regular file");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(error(path("pipe")), path("pipe") + ": is not a regular file");
  EXPECT_EQ(error_of([&] { index_tar(path("pipe")); }), path("pipe") + ": is not a regular file");
}

TEST_F(Safetensors, AFailedWriteKeepsTheOldFile) {
  save_safetensors(path_, {{"a", at::ones({4})}});
  const std::string old = read_file(path_);
  const std::string text = error_of([&] {
    const FullDisk full(4096);
    save_safetensors(path_, {{"a", at::ones({100000})}});
  });
  EXPECT_EQ(text, path_ + ": cannot write: File too large");
  EXPECT_EQ(read_file(path_), old);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "no temporary file may stay behind";
}

}  // namespace
}  // namespace tessera::io

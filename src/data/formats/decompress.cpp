#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <string>

#include <archive.h>
#include <zlib.h>

#include "src/data/formats/byte_stream.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

constexpr std::size_t kInputBytes = 1 << 16;

struct ArchiveCloser {
  void operator()(archive* reader) const { ::archive_read_free(reader); }
};

/// A stream that returns its first bytes, which were read already, again.
class Continued : public ByteStream {
 public:
  Continued(std::string begun, std::unique_ptr<ByteStream> rest) : begun_(std::move(begun)), rest_(std::move(rest)) {}

  std::size_t read(char* out, std::size_t size) override {
    if (at_ == begun_.size()) return rest_->read(out, size);
    const std::size_t count = begun_.copy(out, size, at_);
    at_ += count;
    return count;
  }

 private:
  const std::string begun_;
  std::size_t at_ = 0;
  std::unique_ptr<ByteStream> rest_;
};

/// Decompresses gzip with one or more members. libarchive reads gzip too, but does not check its checksums.
class Gunzipped : public ByteStream {
 public:
  explicit Gunzipped(std::unique_ptr<ByteStream> bytes) : bytes_(std::move(bytes)) {
    constexpr int any_window_of_gzip = 16 + MAX_WBITS;
    if (::inflateInit2(&state_, any_window_of_gzip) != Z_OK) throw StreamError("zlib cannot be started");
  }
  Gunzipped(const Gunzipped&) = delete;
  Gunzipped& operator=(const Gunzipped&) = delete;
  ~Gunzipped() override { ::inflateEnd(&state_); }

  std::size_t read(char* out, std::size_t size) override {
    state_.next_out = reinterpret_cast<Bytef*>(out);
    state_.avail_out = static_cast<uInt>(std::min<std::size_t>(size, 1U << 30));
    const uInt wanted = state_.avail_out;
    while (state_.avail_out == wanted) {
      if (!in_member_ && !begin_member()) return 0;
      if (!fill()) fail("it ends in the middle");
      const int status = ::inflate(&state_, Z_NO_FLUSH);
      if (status == Z_STREAM_END)
        in_member_ = false;
      else if (status != Z_OK && status != Z_BUF_ERROR)
        fail(state_.msg == nullptr ? "damaged" : state_.msg);
    }
    return wanted - state_.avail_out;
  }

 private:
  // Starts the next member, if there is one. Zero padding, as from the last block of a tape, may follow the last member.
  bool begin_member() {
    bool padded = false;
    while (fill()) {
      if (*state_.next_in == 0) {
        padded = true;
        ++state_.next_in;
        --state_.avail_in;
        continue;
      }
      if (padded) fail("more bytes follow its end");
      ::inflateReset(&state_);
      return in_member_ = true;
    }
    return false;
  }

  bool fill() {
    if (state_.avail_in > 0) return true;
    state_.avail_in = static_cast<uInt>(bytes_->read(input_.data(), input_.size()));
    state_.next_in = reinterpret_cast<Bytef*>(input_.data());
    return state_.avail_in > 0;
  }

  [[noreturn]] static void fail(const char* text) {
    throw StreamError(concat("cannot be decompressed: gzip: ", text));
  }

  std::unique_ptr<ByteStream> bytes_;
  std::array<char, kInputBytes> input_{};
  z_stream state_{};
  bool in_member_ = false;
};

/// Decompresses with libarchive: its filters detect the format; the content is treated as a single file ("raw").
class Unarchived : public ByteStream {
 public:
  explicit Unarchived(std::unique_ptr<ByteStream> bytes) : bytes_(std::move(bytes)), reader_(::archive_read_new()) {
    for (const auto add : {::archive_read_support_filter_zstd, ::archive_read_support_filter_bzip2,
                           ::archive_read_support_filter_xz, ::archive_read_support_format_raw,
                           ::archive_read_support_format_empty})
      add(reader_.get());
  }

  std::size_t read(char* out, std::size_t size) override {
    if (!opened_) open();
    if (empty_) return 0;
    const la_ssize_t count = ::archive_read_data(reader_.get(), out, size);
    if (count < 0) fail();
    return static_cast<std::size_t>(count);
  }

 private:
  void open() {
    opened_ = true;
    archive_entry* entry = nullptr;
    if (::archive_read_open(reader_.get(), this, nullptr, take, nullptr) != ARCHIVE_OK) fail();
    const int status = ::archive_read_next_header(reader_.get(), &entry);
    empty_ = status == ARCHIVE_EOF;
    if (status != ARCHIVE_OK && !empty_) fail();
  }

  // libarchive is written in C: exceptions of the byte stream are stored and rethrown after it has returned.
  static la_ssize_t take(archive* reader, void* self, const void** out) {
    auto* const of = static_cast<Unarchived*>(self);
    try {
      *out = of->input_.data();
      return static_cast<la_ssize_t>(of->bytes_->read(of->input_.data(), of->input_.size()));
    } catch (const std::exception& error) {
      of->failure_ = std::current_exception();
      ::archive_set_error(reader, EIO, "%s", error.what());
      return ARCHIVE_FATAL;
    }
  }

  [[noreturn]] void fail() {
    if (failure_) std::rethrow_exception(failure_);
    const char* const text = ::archive_error_string(reader_.get());
    throw StreamError(concat("cannot be decompressed: ", text == nullptr ? "damaged" : text));
  }

  std::unique_ptr<ByteStream> bytes_;
  std::unique_ptr<archive, ArchiveCloser> reader_;
  std::array<char, kInputBytes> input_{};
  std::exception_ptr failure_;
  bool opened_ = false, empty_ = false;
};

/// Detects the format at the first read.
class Decompressed : public ByteStream {
 public:
  explicit Decompressed(std::unique_ptr<ByteStream> bytes) : bytes_(std::move(bytes)) {}

  std::size_t read(char* out, std::size_t size) override {
    if (!opened_) open();
    return bytes_->read(out, size);
  }

 private:
  void open() {
    std::array<char, 2> first{};
    std::string begun;
    while (begun.size() < first.size()) {
      const std::size_t count = bytes_->read(first.data(), first.size() - begun.size());
      if (count == 0) break;
      begun.append(first.data(), count);
    }
    opened_ = true;
    const bool is_gzip = begun == "\x1F\x8B";
    auto whole = std::make_unique<Continued>(std::move(begun), std::move(bytes_));
    if (is_gzip)
      bytes_ = std::make_unique<Gunzipped>(std::move(whole));
    else
      bytes_ = std::make_unique<Unarchived>(std::move(whole));
  }

  std::unique_ptr<ByteStream> bytes_;
  bool opened_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> decompress(std::unique_ptr<ByteStream> bytes) {
  return std::make_unique<Decompressed>(std::move(bytes));
}

}  // namespace tessera

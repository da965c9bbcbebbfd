#include <array>
#include <cerrno>
#include <exception>

#include <archive.h>

#include "src/data/streams/byte_stream.h"
#include <tessera/base/error.h>

namespace tessera {
namespace {

constexpr std::size_t kInputBytes = 1 << 16;

struct ArchiveCloser {
  void operator()(archive* reader) const { ::archive_read_free(reader); }
};

/// libarchive as a decompressor: its filters find the format out; what is in it is taken as one file ("raw").
class Decompressed : public ByteStream {
 public:
  explicit Decompressed(std::unique_ptr<ByteStream> bytes) : bytes_(std::move(bytes)), reader_(::archive_read_new()) {
    for (const auto add :
         {::archive_read_support_filter_gzip, ::archive_read_support_filter_zstd, ::archive_read_support_filter_bzip2,
          ::archive_read_support_filter_xz, ::archive_read_support_format_raw, ::archive_read_support_format_empty})
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

  // libarchive is written in C: what the bytes' stream throws waits until it has returned.
  static la_ssize_t take(archive* reader, void* self, const void** out) {
    auto* const of = static_cast<Decompressed*>(self);
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

}  // namespace

std::unique_ptr<ByteStream> decompress(std::unique_ptr<ByteStream> bytes) {
  return std::make_unique<Decompressed>(std::move(bytes));
}

}  // namespace tessera

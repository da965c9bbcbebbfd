#include "src/data/formats/byte_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <span>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <archive.h>
#include <zlib.h>

#include "src/remote/store.h"
#include <tessera/base/error.h>
#include <tessera/data/stream.h>

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kSlice{100};  // how often a wait checks `stop`

constexpr std::string_view kPipe = "pipe:";

/// The bytes of a file, or the output of a command.
class DescriptorBytes : public ByteStream {
 public:
  DescriptorBytes(const std::string& address, const StreamWaitPolicy& wait_policy) : patience_(wait_policy) {
    if (address.starts_with(kPipe))
      start(address.substr(kPipe.size()));
    else if (descriptor_ = ::open(local_copy(address).c_str(), O_RDONLY | O_CLOEXEC); descriptor_ < 0)
      throw StreamError(concat("cannot be opened: ", std::strerror(errno)));
  }

  ~DescriptorBytes() override {
    ::close(descriptor_);
    if (process_ < 0) return;
    ::kill(-process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  DescriptorBytes(const DescriptorBytes&) = delete;
  DescriptorBytes& operator=(const DescriptorBytes&) = delete;

  std::size_t read(char* out, std::size_t size) override {
    const auto deadline = Clock::now() + patience_.timeout;
    while (true) {
      pollfd waited{descriptor_, POLLIN, 0};
      const int ready = ::poll(&waited, 1, static_cast<int>(kSlice.count()));
      if (patience_.stop.stop_requested()) throw Stopped();  // a stream may skip many samples before it returns one
      if (ready <= 0) {
        if (process_ >= 0 && Clock::now() > deadline) throw StreamError(concat("wrote no output for ", static_cast<double>(patience_.timeout.count()) / 1000, " s"));
        continue;
      }
      const ssize_t count = ::read(descriptor_, out, size);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw StreamError(concat("cannot be read: ", std::strerror(errno)));
      if (count == 0) check_exit();
      return static_cast<std::size_t>(count);
    }
  }

 private:
  // Returns the path of a file, for a remote one that of its copy, which exists as long as this object.
  std::string local_copy(const std::string& address) {
    if (!remote::is_remote(address)) return address;
    try {
      return copy_.emplace(remote::store()->open(address)).path();
    } catch (const UserError& error) {
      const std::string what = error.what();
      throw StreamError(what.starts_with(address + ": ") ? what.substr(address.size() + 2) : what);
    }
  }

  void start(const std::string& command) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw StreamError(concat("no pipe: ", std::strerror(errno)));
    descriptor_ = ends[0];
    const int failed = spawn(command, ends[1]);
    ::close(ends[1]);
    if (failed == 0) return;
    ::close(descriptor_);
    throw StreamError(concat("cannot be started: ", std::strerror(failed)));
  }

  int spawn(const std::string& command, int output) {
    posix_spawn_file_actions_t actions{};
    posix_spawnattr_t attributes{};
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    // The command gets its own process group, so that a whole pipeline can be killed. It also gets the signal settings that a
    // shell expects.
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    sigset_t signals{};
    ::sigemptyset(&signals);
    ::posix_spawnattr_setsigmask(&attributes, &signals);
    for (const int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, signal);
    ::posix_spawnattr_setsigdefault(&attributes, &signals);
    std::array<char*, 4> arguments = {const_cast<char*>("sh"), const_cast<char*>("-c"),
                                      const_cast<char*>(command.c_str()), nullptr};
    const int failed = ::posix_spawn(&process_, "/bin/sh", &actions, &attributes, arguments.data(), environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) process_ = -1;
    return failed;
  }

  // Called at the end of the output, because only the exit code shows whether the output is complete.
  void check_exit() {
    if (process_ < 0) return;
    const auto deadline = Clock::now() + patience_.timeout;
    int status = 0;
    while (::waitpid(process_, &status, WNOHANG) == 0) {
      if (patience_.stop.stop_requested()) throw Stopped();
      if (Clock::now() > deadline) throw StreamError("closed its output, but did not end");
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    process_ = -1;
    if (WIFSIGNALED(status)) throw StreamError(concat("was ended by signal ", WTERMSIG(status)));
    if (WEXITSTATUS(status) != 0) throw StreamError(concat("ended with exit code ", WEXITSTATUS(status)));
  }

  StreamWaitPolicy patience_;
  std::optional<remote::Lease> copy_;  // of a remote file
  int descriptor_ = -1;
  pid_t process_ = -1;  // -1: a file, or a command that has ended
};

/// Reads a stream in pieces.
class Pieces {
 public:
  explicit Pieces(std::unique_ptr<ByteStream> bytes) : bytes_(std::move(bytes)) {}

  /// Returns whether the stream begins with these bytes, before next() is first called.
  bool begin_with(std::string_view start) {
    for (std::size_t count = 1; begun_ < start.size() && count > 0; begun_ += count)
      count = bytes_->read(input_.data() + begun_, input_.size() - begun_);
    return std::string_view(input_.data(), begun_).starts_with(start);
  }
  /// Returns the next bytes, which are valid until the next call; empty at the end.
  std::span<char> next() {
    if (const std::size_t begun = std::exchange(begun_, 0); begun > 0) return {input_.data(), begun};
    return {input_.data(), bytes_->read(input_.data(), input_.size())};
  }

 private:
  std::unique_ptr<ByteStream> bytes_;
  std::array<char, 1 << 16> input_{};
  std::size_t begun_ = 0;  // number of bytes that begin_with() has read
};

/// Decompresses gzip with one or more members. libarchive reads gzip too, but does not check its checksums.
class Gunzipped : public ByteStream {
 public:
  explicit Gunzipped(std::unique_ptr<Pieces> bytes) : bytes_(std::move(bytes)) {
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
      in_member_ = status != Z_STREAM_END;
      if (in_member_ && status != Z_OK && status != Z_BUF_ERROR) fail(state_.msg == nullptr ? "damaged" : state_.msg);
    }
    return wanted - state_.avail_out;
  }

 private:
  // Starts the next member; returns false if there is none. The last member may be followed by zero padding, as from a tape's
  // last block.
  bool begin_member() {
    bool padded = false;
    for (; fill() && *state_.next_in == 0; padded = true) {
      ++state_.next_in;
      --state_.avail_in;
    }
    if (state_.avail_in == 0) return false;
    if (padded) fail("more bytes follow its end");
    ::inflateReset(&state_);
    return in_member_ = true;
  }

  bool fill() {
    if (state_.avail_in > 0) return true;
    const std::span<char> piece = bytes_->next();
    state_.avail_in = static_cast<uInt>(piece.size());
    state_.next_in = reinterpret_cast<Bytef*>(piece.data());
    return !piece.empty();
  }

  [[noreturn]] static void fail(const char* text) { throw StreamError(concat("cannot be decompressed: gzip: ", text)); }

  std::unique_ptr<Pieces> bytes_;
  z_stream state_{};
  bool in_member_ = false;
};

/// Decompresses with libarchive, whose filters detect the format. The content is treated as a single file (libarchive's format
/// "raw").
class Unarchived : public ByteStream {
 public:
  explicit Unarchived(std::unique_ptr<Pieces> bytes) : bytes_(std::move(bytes)), reader_(::archive_read_new(), ::archive_read_free) {
    for (const auto add : {::archive_read_support_filter_zstd, ::archive_read_support_filter_bzip2, ::archive_read_support_filter_xz,
                           ::archive_read_support_format_raw, ::archive_read_support_format_empty})
      add(reader_.get());
    archive_entry* entry = nullptr;
    check(::archive_read_open(reader_.get(), this, nullptr, take, nullptr));
    const int status = ::archive_read_next_header(reader_.get(), &entry);
    empty_ = status == ARCHIVE_EOF;
    if (!empty_) check(status);
  }

  std::size_t read(char* out, std::size_t size) override {
    const la_ssize_t count = empty_ ? 0 : ::archive_read_data(reader_.get(), out, size);
    check(static_cast<int>(std::min<la_ssize_t>(count, ARCHIVE_OK)));
    return static_cast<std::size_t>(count);
  }

 private:
  // libarchive is written in C, so an exception of the byte stream is stored here and rethrown after libarchive has returned.
  static la_ssize_t take(archive* reader, void* self, const void** out) {
    auto* const of = static_cast<Unarchived*>(self);
    try {
      const std::span<char> piece = of->bytes_->next();
      *out = piece.data();
      return static_cast<la_ssize_t>(piece.size());
    } catch (const std::exception& error) {
      of->failure_ = std::current_exception();
      ::archive_set_error(reader, EIO, "%s", error.what());
      return ARCHIVE_FATAL;
    }
  }

  void check(int status) const {
    if (status == ARCHIVE_OK) return;
    if (failure_) std::rethrow_exception(failure_);
    const char* const text = ::archive_error_string(reader_.get());
    throw StreamError(concat("cannot be decompressed: ", text == nullptr ? "damaged" : text));
  }

  std::unique_ptr<Pieces> bytes_;
  std::unique_ptr<archive, int (*)(archive*)> reader_;
  std::exception_ptr failure_;
  bool empty_ = false;
};

/// Detects the compression format at the first read.
class Decompressed : public ByteStream {
 public:
  explicit Decompressed(std::unique_ptr<ByteStream> bytes) : bytes_(std::make_unique<Pieces>(std::move(bytes))) {}

  std::size_t read(char* out, std::size_t size) override {
    if (format_ == nullptr && bytes_->begin_with("\x1F\x8B"))
      format_ = std::make_unique<Gunzipped>(std::move(bytes_));
    else if (format_ == nullptr)
      format_ = std::make_unique<Unarchived>(std::move(bytes_));
    return format_->read(out, size);
  }

 private:
  std::unique_ptr<Pieces> bytes_;
  std::unique_ptr<ByteStream> format_;
};

}  // namespace

std::unique_ptr<ByteStream> open_bytes(const std::string& address, const StreamWaitPolicy& wait_policy) {
  return std::make_unique<DescriptorBytes>(address, wait_policy);
}

std::unique_ptr<ByteStream> decompress(std::unique_ptr<ByteStream> bytes) {
  return std::make_unique<Decompressed>(std::move(bytes));
}

}  // namespace tessera

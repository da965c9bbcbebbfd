#include "src/data/formats/sample_file.h"

#include <cerrno>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include <tessera/base/error.h>
#include <tessera/data/source.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

constexpr std::size_t kLongestPath = 1000;  // maximum length of a path or error text in a message

}  // namespace

std::string read_sample_file(const std::string& path, const char* missing) {
  try {
    return io::read_file(path);
  } catch (const UserError& error) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      // A user's list may contain any text as a file name, so these errors concern only this sample.
      if (errno == ENOENT || errno == ENOTDIR || errno == ENAMETOOLONG || errno == ELOOP)
        throw SampleError(missing, printable(path, kLongestPath) + ": no such file");
      if (errno != EACCES) throw;
    } else if (S_ISREG(status.st_mode) && ::access(path.c_str(), R_OK) == 0) {
      throw;
    }
    throw SampleError("unreadable", printable(error.what(), kLongestPath));
  }
}

std::uint64_t file_id(const std::string& path) {
  std::error_code ignored;
  return fingerprint(std::filesystem::absolute(path, ignored).lexically_normal().native());
}

}  // namespace tessera

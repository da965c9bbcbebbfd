#include "src/data/formats/data_files.h"

#include <cerrno>
#include <filesystem>
#include <map>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/digest.h"
#include "src/base/printable.h"
#include "src/io/stand_in.h"
#include "src/remote/store.h"
#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/data/source.h>
#include <tessera/io/atomic_file.h>

namespace tessera {
namespace {

constexpr std::size_t kLongestPath = 1000;  // maximum length of a path or error text in a message

}  // namespace

DataFile data_file_at(const std::string& path) {
  if (remote::is_remote(path)) {
    const remote::ObjectState state = remote::store()->look_up(path);
    return {remote::file_name(path), "", state.size, state.version};
  }
  return {std::filesystem::path(path).filename().string(), path};
}

std::string read_sample_file(const std::string& path, const char* missing) {
  if (remote::is_remote(path)) {
    try {
      return remote::store()->read_small(path);
    } catch (const remote::MissingObject& error) {
      throw SampleError(missing, printable(error.what(), kLongestPath));
    }
  }
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

std::string read_sample_text(const std::string& path) {
  return checked_text(read_sample_file(path, "unreadable"), printable(path, kLongestPath));
}

std::string checked_text(std::string text, const std::string& place) {
  if (const std::string problem = io::describe_stand_in(text); !problem.empty())
    throw SampleError("bad_text", concat(place, ": is not a text: ", problem));
  io::remove_byte_order_mark(text);
  return text;
}

bool sample_file_exists(const std::string& path) {
  std::error_code ignored;
  if (!remote::is_remote(path)) return std::filesystem::exists(path, ignored);
  try {
    remote::store()->look_up(path);
    return true;
  } catch (const remote::MissingObject&) {
    return false;
  }
}

std::uint64_t FileIds::of(const std::string& path) {
  if (remote::is_remote(path)) return fingerprint(path);
  std::error_code problem;
  const std::filesystem::path whole = std::filesystem::absolute(path, problem), folder = whole.parent_path();
  const auto [known, is_new] = folders_.try_emplace(folder.native());
  if (is_new) {
    const std::filesystem::path real = std::filesystem::weakly_canonical(folder, problem);
    known->second = (problem ? folder.lexically_normal() : real).native();
  }
  std::filesystem::path file = (std::filesystem::path(known->second) / whole.filename()).lexically_normal();
  if (std::filesystem::is_symlink(file, problem)) {
    const std::filesystem::path real = std::filesystem::weakly_canonical(file, problem);
    if (!problem && (real.parent_path() == file.parent_path() || real.filename() == file.filename())) file = real;
  }
  return fingerprint(file.native());
}

std::vector<std::string> read_class_names(const config::FilePath& path) {
  config::require(path);
  std::vector<std::string> names, twice;
  std::map<std::string, std::size_t> seen;
  for (const std::string& line : split(strip(io::read_data_file(path)), '\n')) {
    names.emplace_back(strip(line));
    if (names.back().empty()) user_error(path, ":", names.size(), ": expected a class name, got an empty line");
    const auto [first, is_new] = seen.emplace(names.back(), names.size());
    if (!is_new && twice.size() < 5)
      twice.push_back(concat(printable(names.back(), 60), " (lines ", first->second, " and ", names.size(), ")"));
  }
  if (!twice.empty())
    log::warning(path, ": classes have the same name: ", join_names(twice), "; samples need their class's index, not its name");
  return names;
}

std::vector<std::string> read_list(const std::string& path) {
  std::vector<std::string> items = split(io::read_data_file(path), '\n');
  for (std::string& item : items) item = std::string(strip(item));
  std::erase_if(items, [](const std::string& item) { return item.empty() || item.front() == '#'; });
  return items;
}

std::string fill_template(std::string text, const std::string& name) {
  const std::size_t place = text.find("{}");
  return place == std::string::npos ? text : text.replace(place, 2, name);
}

}  // namespace tessera

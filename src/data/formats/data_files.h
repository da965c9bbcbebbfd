#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <tessera/base/text.h>
#include <tessera/config/file_path.h>
#include <tessera/data/source.h>

namespace tessera {

/// Returns a local file, or a remote one with its size and version, as a source's data file, named without its folder.
DataFile data_file_at(const std::string& path);

/// Returns the bytes of a file that belongs to one sample, remote::Store::read_small() of a remote one. If only this sample is bad, throws
/// SampleError: with the reason `missing` if the file does not exist (or if a web server does not let it be read), or with "unreadable" if
/// the file is a folder or permission is denied. Throws UserError if the disk or the network fails, because this affects the whole source
/// and reading again may help.
std::string read_sample_file(const std::string& path, const char* missing);

/// Returns whether there is a file that belongs to one sample.
bool sample_file_exists(const std::string& path);

/// Returns the bytes of a text that belongs to one sample, without a byte order mark. Throws as read_sample_file() does, and SampleError
/// `bad_text` if the file is a web page or a pointer of Git LFS.
std::string read_sample_text(const std::string& path);

/// Returns a text that belongs to one sample, without a byte order mark. Throws SampleError `bad_text` naming `place` if it is a web page
/// or a pointer of Git LFS.
std::string checked_text(std::string text, const std::string& place);

/// Numbers files for Source::image_ids(). The object remembers the folders that it has looked up, so make one for each list.
class FileIds {
 public:
  /// Returns a number that is the same for all ways to write a file's path: a.png, ./a.png, /data/a.png, and through links. A link to a
  /// file of another name in another folder is another file, because caches store equal files under one name and link to it.
  std::uint64_t of(const std::string& path);

 private:
  std::unordered_map<std::string, std::string> folders_;  // folder as written -> its path without links
};

/// Reads class names from a text file, one per line, ignoring empty lines at the end. Throws UserError if the file is missing, or
/// if there is an empty line between names. Warns of names that occur twice.
std::vector<std::string> read_class_names(const config::FilePath& path);

/// Calls use(line, its number from 1) for the lines of a text that are not blank.
template <class Use>
void for_each_line(std::string_view text, const Use& use) {
  std::int64_t number = 0;
  for (const std::string& line : split(text, '\n'))
    if (++number; !strip(line).empty()) use(line, number);
}

/// Returns the items of a text file with one item per line. Empty lines and lines that start with # are skipped. Throws UserError if the
/// file cannot be read.
std::vector<std::string> read_list(const std::string& path);

/// Returns the template with its first {} replaced by the class name.
std::string fill_template(std::string text, const std::string& name);

}  // namespace tessera

#pragma once

#include <string>
#include <string_view>

/// Files that lie where data are expected because a download went wrong: web pages, error messages in XML, pointers of Git LFS.
namespace tessera::io {

/// If the beginning of a file shows that it is such a file, returns `it begins with the text "...": ` and what to do; otherwise "".
std::string describe_stand_in(std::string_view start);

/// Returns the same for a file that should not be text. If it is any other text, returns only `it begins with the text "..."`.
std::string describe_text(std::string_view start);

/// Removes a byte order mark of UTF-8 at the beginning of a text, as editors on Windows write it.
void remove_byte_order_mark(std::string& text);

/// Returns the content of a file of data, such as a list or a vocabulary, without a byte order mark. Throws UserError if it cannot be read
/// or if describe_stand_in() recognizes it. Warns if it is empty. Messages name the file `name`, if it is not empty.
std::string read_data_file(const std::string& path, const std::string& name = {});

}  // namespace tessera::io

#include "src/data/formats/paths.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <glob.h>
#include <optional>

#include "src/base/printable.h"
#include "src/remote/store.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostNames = 1'000'000;

void append(std::vector<std::string>& out, std::vector<std::string> more) {
  out.insert(out.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// Returns the position of the brace that closes the one at `open`, or npos.
std::size_t closing_brace(const std::string& text, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return std::string::npos;
}

// Splits at commas outside braces; with `colons`, also at "::".
std::vector<std::string> split_outside_braces(const std::string& text, bool colons) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}') --depth;
    const bool comma = depth == 0 && text[i] == ',';
    const bool pair = colons && depth == 0 && text.compare(i, 2, "::") == 0;
    if (pair) ++i;
    if (comma || pair)
      parts.emplace_back();
    else
      parts.back() += text[i];
  }
  return parts;
}

// Returns the end of a message about a name that stands for no file.
std::string unclosed_hint(const std::string& name) {
  for (std::size_t open = name.find('{'); open != std::string::npos; open = name.find('{', open)) {
    open = closing_brace(name, open);
    if (open == std::string::npos) return ": its brace { is not closed";
  }
  return {};
}

bool is_number(const std::string& text) {
  const std::size_t digits = text.starts_with('-') ? 1 : 0;
  return text.size() > digits && text.size() < 16 && text.find_first_not_of("0123456789", digits) == std::string::npos;
}

// The order of letters in ranges: upper case, then lower case, without the characters between them in ASCII.
constexpr std::string_view kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

bool is_padded(const std::string& number) {
  return number.size() > 1 && number != "-0" && (number.starts_with('0') || number.starts_with("-0"));
}

std::string with_zeros(std::int64_t value, std::size_t width) {
  std::string out = std::to_string(value);
  if (out.size() < width) out.insert(value < 0 ? 1 : 0, width - out.size(), '0');
  return out;
}

// Expands FIRST..LAST or FIRST..LAST..STEP, up or down; the sign of the step is ignored.
std::vector<std::string> expand_range(const std::string& inside, const std::string& whole) {
  const std::size_t dots = inside.find(".."), more = std::min(inside.find("..", dots + 2), inside.size());
  const std::string first = inside.substr(0, dots), last = inside.substr(dots + 2, more - dots - 2);
  const std::string step = more == inside.size() ? "1" : inside.substr(more + 2);
  const auto is_letter = [](const std::string& text) { return text.size() == 1 && kLetters.find(text[0]) != std::string_view::npos; };
  const bool letters = is_letter(first) && is_letter(last);
  if ((!letters && !(is_number(first) && is_number(last))) || !is_number(step))
    user_error(printable(whole), ": {", printable(inside),
               "} is not a range: expected two whole numbers or letters, for example {00000..00004}");
  const auto place = [&](const std::string& end) { return letters ? static_cast<std::int64_t>(kLetters.find(end[0])) : std::stoll(end); };
  const std::int64_t from = place(first), to = place(last);
  const std::int64_t apart = std::max<std::int64_t>(std::abs(std::stoll(step)), 1), steps = std::abs(to - from) / apart;
  if (steps >= kMostNames) user_error(printable(whole), ": {", printable(inside), "} stands for more than ", kMostNames, " names");
  const std::size_t width = is_padded(first) || is_padded(last) ? std::max(first.size(), last.size()) : 0;
  std::vector<std::string> out;
  for (std::int64_t i = 0; i <= steps; ++i) {
    const std::int64_t at = from + (to < from ? -i : i) * apart;
    out.push_back(letters ? std::string(1, kLetters[static_cast<std::size_t>(at)]) : with_zeros(at, width));
  }
  return out;
}

// Returns the alternatives in a pair of braces; nullopt if the braces are literal ("{}", "{5}", a shell's "{ cat ../x; }").
std::optional<std::vector<std::string>> alternatives(const std::string& inside, const std::string& whole) {
  std::vector<std::string> listed = split_outside_braces(inside, false);
  if (listed.size() > 1) return listed;
  if (inside.find("..") == std::string::npos || inside.find_first_of("{ /") != std::string::npos) return std::nullopt;
  return expand_range(inside, whole);
}

// Expands the braces of a text. Each pair of braces multiplies the number of names, so the number and the bytes of the names are limited
// during expansion.
class Expansion {
 public:
  explicit Expansion(const std::string& whole) : whole_(whole) {}

  std::vector<std::string> of(const std::string& text, int depth) {
    const std::size_t open = text.find('{');
    const std::size_t close = open == std::string::npos ? open : closing_brace(text, open);
    if (close == std::string::npos) return {text};
    constexpr int deepest = 50;
    if (depth == deepest) user_error(printable(whole_), ": more than ", deepest, " braces in one name");
    std::vector<std::string> out;
    const std::vector<std::string> tails = of(text.substr(close + 1), depth + 1);
    const std::string head = text.substr(0, open);
    const std::vector<std::string> heads = middles(text.substr(open + 1, close - open - 1), depth);
    if (static_cast<std::int64_t>(heads.size() * tails.size()) > 2 * kMostNames) refuse();
    for (const std::string& middle : heads)
      for (const std::string& tail : tails) {
        out.push_back(head + middle + tail);
        count(out.back());
      }
    return out;
  }

 private:
  std::vector<std::string> middles(const std::string& inside, int depth) {
    std::vector<std::string> out;
    const auto choices = alternatives(inside, whole_);
    if (!choices)
      for (const std::string& name : of(inside, depth + 1)) out.push_back("{" + name + "}");
    else
      for (const std::string& choice : *choices)
        append(out, choice.find('{') == std::string::npos ? std::vector{choice} : of(choice, depth + 1));
    return out;
  }

  void count(const std::string& name) {
    constexpr std::uint64_t most_bytes = std::uint64_t{1} << 30;
    bytes_ += name.size();
    if (++names_ > 2 * kMostNames || bytes_ > most_bytes) refuse();
  }

  [[noreturn]] void refuse() const {
    user_error(printable(whole_), ": its braces stand for too many names: at most ", with_thousands(kMostNames), " are read");
  }

  const std::string& whole_;
  std::int64_t names_ = 0;  // number of names made so far; intermediate names count too, so the limit is 2 * kMostNames
  std::uint64_t bytes_ = 0;
};

std::vector<std::string> match_wildcards(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> out(found.gl_pathv, found.gl_pathv + (status == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  return out;
}

bool has_wildcards(const std::string& name) {
  return name.find_first_of("*?[") != std::string::npos;
}

// Returns the place in the settings that gives the paths, as a prefix for messages ("a.yaml:12: data.train.path: "), or an empty text.
std::string before(const PathList& paths) {
  return paths.origin.empty() ? "" : paths.origin + ": ";
}

std::string places(const PathList& paths, const std::string& name) {
  return (fs::path(name).is_absolute() ? "" : config::searched_text(paths.searched)) + unclosed_hint(name);
}

std::vector<std::string> files_of_folder(const std::string& folder, const std::string& extension) {
  std::vector<std::string> out;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(folder, failed))
    if (entry.path().filename().string().ends_with(extension)) out.push_back(entry.path().string());
  if (failed) user_error(folder, ": cannot be listed: ", failed.message());
  if (out.empty()) user_error(folder, ": holds no ", extension, " files");
  std::sort(out.begin(), out.end());
  return out;
}

// Returns the files that one name without braces or separators refers to.
std::vector<std::string> resolve(const std::string& written, const std::string& extension, const PathList& paths) {
  if (remote::is_remote(written)) return remote::store()->expand(written, extension);
  const std::string name = local_path(written);
  std::error_code ignored;
  if (fs::is_directory(name, ignored)) return files_of_folder(name, extension);
  if (fs::exists(name, ignored) || !has_wildcards(name)) return {name};
  std::vector<std::string> out = match_wildcards(name);
  if (out.empty()) user_error(before(paths), name, ": no file matches", places(paths, name));
  return out;
}

// Quotes a text as a word of a shell command. Braces are not quoted, because expand_braces() expands them before a shell runs the command.
std::string shell_word(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("/:._-+=@%,{}").find(static_cast<char>(c)) != std::string_view::npos;
  });
  return plain ? text : "'" + text + "'";
}

// Returns the scheme of an address: "s3" for "s3://a", and also for "{s3://a,s3://b}". Returns nullopt for a local name.
std::optional<std::string> scheme_of(const std::string& text) {
  const std::size_t end = text.find("://");
  if (end == std::string::npos) return std::nullopt;
  std::size_t begin = end;
  while (begin > 0 && std::isalnum(static_cast<unsigned char>(text[begin - 1])) != 0) --begin;
  return text.substr(begin, end - begin);
}

// Throws UserError if the text names a file in another place.
void refuse_remote(const std::string& text, FilePlaces places) {
  if (text.starts_with("pipe:")) {
    if (places == FilePlaces::commands) user_error(text, ": a command after a file name: write them as a list with one per item");
    user_error(text, ": commands are not supported; expected ", places == FilePlaces::local ? "local files" : "files");
  }
  const std::optional<std::string> scheme = scheme_of(local_path(text));
  if (!scheme) return;
  if (*scheme == "file") {
    if (text.starts_with("file:")) user_error(text, ": is on another machine; expected file:///PATH, a local file");
    return;  // the address is inside braces, which are expanded later
  }
  if (places != FilePlaces::local && remote::is_remote(*scheme + "://")) return;
  if (places == FilePlaces::local) user_error(text, ": only local files can be read: copy them first and use their paths");
  if (places == FilePlaces::stores)
    user_error(text, ": only local files, s3://, gs://, hf://, http:// and https:// can be read: copy the files first");
  user_error(text,
             ": only local files, s3://, gs://, hf://, http://, https:// and commands can be read: copy the files first, or read them "
             "through a command, such as path: \"pipe:COMMAND ",
             shell_word(text), "\"");
}

void check_existence(const std::vector<std::string>& names, const PathList& paths) {
  std::vector<std::string> missing, remote;
  std::error_code ignored;
  for (const std::string& name : names)
    if (remote::is_remote(name))
      remote.push_back(name);
    else if (!fs::exists(name, ignored))
      missing.push_back(name);
  if (!remote.empty()) remote::store()->look_up_all(remote);
  if (missing.empty()) return;
  const std::string text = concat(before(paths), missing[0], ": no such file", places(paths, missing[0]));
  if (names.size() == 1) user_error(text);
  user_error(text, " (", missing.size(), " of the ", names.size(), " files named are missing)");
}

bool is_local_and_relative(const std::string& name) {
  return !name.starts_with("pipe:") && !name.starts_with("file:") && !scheme_of(name) && fs::path(name).is_relative();
}

// Returns the path folder/name if it exists, or if its braces and wildcards stand for at least one existing file; otherwise nullopt.
std::optional<std::string> found_in(const std::string& folder, const std::string& name) {
  const std::string whole = (fs::path(folder) / name).lexically_normal().string();
  std::error_code ignored;
  const auto there = [&](const std::string& each) {
    const std::string path = (fs::path(folder) / each).lexically_normal().string();
    return fs::exists(path, ignored) || (has_wildcards(each) && !match_wildcards(path).empty());
  };
  return fs::exists(whole, ignored) || std::ranges::any_of(expand_braces(name), there) ? std::optional(whole) : std::nullopt;
}

std::string found_path(const std::string& name, const std::vector<std::string>& folders) {
  if (name.empty() || !is_local_and_relative(name)) return name;
  for (const std::string& folder : folders)
    if (const auto found = found_in(folder, name)) return *found;
  return name;
}

// Replaces each name of an item by its path in the first folder where it exists. An item may hold several names
// ("a.tar::b.tar").
std::string found_item(const std::string& item, const std::vector<std::string>& folders) {
  if (!is_local_and_relative(item)) return item;
  const std::string whole = found_path(item, folders);
  if (whole != item) return whole;
  std::string out;
  for (const std::string& part : split_outside_braces(item, true)) out += (out.empty() ? "" : "::") + found_path(part, folders);
  return out;
}

}  // namespace

PathList config::Value<PathList>::read(const Node& node, const std::string& path, const PathList&) {
  PathList out{Value<std::vector<std::string>>::read(node, path, {}), origin_of(node, path), search_folders(node)};
  for (std::size_t i = 0; i < out.items.size(); ++i) {
    const Node& written = node.is_sequence() ? node.items()[i] : node;
    out.items[i] = found_item(out.items[i], search_folders(written));
  }
  return out;
}

std::vector<std::string> expand_braces(const std::string& text) {
  return Expansion(text).of(text, 0);
}

std::string local_path(const std::string& name) {
  for (const std::string prefix : {"file://localhost/", "file:///"})
    if (name.starts_with(prefix)) return name.substr(prefix.size() - 1);
  const std::string shortest = "file:/";
  if (name.starts_with(shortest) && !name.starts_with(shortest + "/")) return name.substr(shortest.size() - 1);
  return name;
}

std::string first_and_more(const std::vector<std::string>& paths, const char* what) {
  return paths.size() == 1 ? paths[0] : concat(paths[0], " and ", paths.size() - 1, " more ", what);
}

std::vector<std::string> expand_paths(const PathList& paths, const std::string& extension, FilePlaces places) {
  std::vector<std::string> out;
  std::error_code ignored;
  for (const std::string& item : paths.items) {
    if (item.empty()) continue;
    // Refuses a command before the item is split at commas, so that the message names the whole command.
    if (item.starts_with("pipe:")) refuse_remote(item, places);
    if (fs::exists(local_path(item), ignored)) {  // the name of a file may contain commas and braces
      append(out, resolve(item, extension, paths));
      continue;
    }
    for (const std::string& part : split_outside_braces(item, true))
      if (!part.empty()) {
        refuse_remote(part, places);
        for (const std::string& name : expand_braces(part)) append(out, resolve(name, extension, paths));
      }
  }
  if (out.empty())
    user_error(paths.origin.empty() ? "path" : paths.origin,
               ": no file is given; expected a file, a list of files, or a pattern such as train-{00000..00004}", extension);
  check_existence(out, paths);
  return out;
}

}  // namespace tessera

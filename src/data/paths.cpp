#include <algorithm>
#include <filesystem>
#include <glob.h>

#include <tessera/base/error.h>
#include <tessera/base/printable.h>
#include <tessera/base/text.h>
#include <tessera/data/paths.h>

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMostNames = 1'000'000;

// The bracket that closes the one at `open`, or npos.
std::size_t closing_brace(const std::string& text, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return std::string::npos;
}

// Splits at commas (and, with `colons`, at "::") that stand outside braces.
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

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 16 && text.find_first_not_of("0123456789") == std::string::npos;
}

std::vector<std::string> alternatives(const std::string& inside, const std::string& whole) {
  const std::size_t dots = inside.find("..");
  if (dots == std::string::npos || inside.find(',') != std::string::npos) return split_outside_braces(inside, false);
  const std::string first = inside.substr(0, dots);
  const std::string last = inside.substr(dots + 2);
  if (!is_number(first) || !is_number(last))
    user_error(printable(whole), ": {", printable(inside),
               "} is no range: expected two whole numbers, for example {00000..00004}");
  const std::int64_t low = std::stoll(first), high = std::stoll(last);
  if (high < low)
    user_error(printable(whole), ": {", printable(inside), "} counts down: write {", last, "..", first, "}");
  if (high - low >= kMostNames)
    user_error(printable(whole), ": {", printable(inside), "} stands for more than ", kMostNames, " names");
  const std::size_t width = first[0] == '0' || last[0] == '0' ? std::max(first.size(), last.size()) : 0;
  std::vector<std::string> out;
  for (std::int64_t i = low; i <= high; ++i) {
    std::string number = std::to_string(i);
    if (number.size() < width) number.insert(0, width - number.size(), '0');
    out.push_back(std::move(number));
  }
  return out;
}

// Names multiply with each brace: they are counted, in number and in bytes, while they are made.
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
    for (const std::string& choice : alternatives(text.substr(open + 1, close - open - 1), whole_))
      for (const std::string& middle : of(choice, depth + 1))
        for (const std::string& tail : tails) {
          out.push_back(head + middle + tail);
          count(out.back());
        }
    return out;
  }

 private:
  void count(const std::string& name) {
    constexpr std::uint64_t most_bytes = std::uint64_t{1} << 30;
    bytes_ += name.size();
    if (++names_ > 2 * kMostNames || bytes_ > most_bytes)
      user_error(printable(whole_), ": its braces stand for too many names: at most ", with_thousands(kMostNames),
                 " are read");
  }

  const std::string& whole_;
  std::int64_t names_ = 0;  // with those in between, at most as many as come out of them
  std::uint64_t bytes_ = 0;
};

std::vector<std::string> match_wildcards(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> out(found.gl_pathv, found.gl_pathv + (status == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  if (out.empty()) user_error(pattern, ": no file matches");
  return out;
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

void append(std::vector<std::string>& out, std::vector<std::string> more) {
  out.insert(out.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

// One name without braces or separators.
std::vector<std::string> resolve(const std::string& name, const std::string& extension) {
  std::error_code ignored;
  if (fs::is_directory(name, ignored)) return files_of_folder(name, extension);
  if (!fs::exists(name, ignored) && name.find_first_of("*?[") != std::string::npos) return match_wildcards(name);
  return {name};
}

void refuse_remote(const std::string& text) {
  if (text.starts_with("pipe:")) user_error(text, ": commands are not read; expected local files");
  if (text.find("://") != std::string::npos)
    user_error(text, ": only local files are read: copy them first, and give their paths");
}

void check_existence(const std::vector<std::string>& names) {
  std::vector<std::string> missing;
  std::error_code ignored;
  for (const std::string& name : names)
    if (!fs::exists(name, ignored)) missing.push_back(name);
  if (missing.empty()) return;
  if (names.size() == 1) user_error(missing[0], ": no such file");
  user_error(missing[0], ": no such file (", missing.size(), " of the ", names.size(), " files named are missing)");
}

}  // namespace

std::vector<std::string> expand_braces(const std::string& text) {
  return Expansion(text).of(text, 0);
}

std::vector<std::string> expand_paths(const PathList& paths, const std::string& extension) {
  std::vector<std::string> out;
  std::error_code ignored;
  for (const std::string& item : paths.items) {
    if (item.empty()) continue;
    refuse_remote(item);
    if (fs::exists(item, ignored)) {  // a name may hold commas and braces itself
      append(out, resolve(item, extension));
      continue;
    }
    for (const std::string& part : split_outside_braces(item, true))
      if (!part.empty())
        for (const std::string& name : expand_braces(part)) append(out, resolve(name, extension));
  }
  if (out.empty())
    user_error("path: no file is named; expected a file, a list of files, or a pattern such as train-{00000..00004}",
               extension);
  check_existence(out);
  return out;
}

}  // namespace tessera

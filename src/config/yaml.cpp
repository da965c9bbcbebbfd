#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include <yaml-cpp/yaml.h>

#include "src/base/printable.h"
#include "src/config/environment.h"
#include "src/config/noncharacter.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/node.h>
#include <tessera/config/shipped.h>

namespace tessera::config {
namespace {

// Limits on a configuration after its aliases are expanded. They are needed because an alias can refer to itself, directly or through other
// aliases, which would make an endless tree.
constexpr int kMaxDepth = 100;
constexpr int kMaxNodes = 1'000'000;

// yaml-cpp turns each of the escapes \N and \_ into a single byte, which is not valid UTF-8.
const std::string& text_of(const YAML::Node& scalar, const Mark& mark) {
  if (!is_utf8(scalar.Scalar()))
    user_error(mark.text(), ": ", printable(scalar.Scalar()), " is not UTF-8 (instead of \\N and \\_ write \\u0085 and \\u00A0)");
  if (holds_noncharacter(scalar.Scalar()))
    user_error(mark.text(), ": not valid YAML: it holds a Unicode noncharacter (U+FFFE, U+FFFF, ...)");
  return scalar.Scalar();
}

constexpr const char* kQuoteBraces = "a value with braces needs quotes here: ";

// Detects an unquoted {a..b}, which YAML parses as a map with one key and no value.
bool is_range(const YAML::Node& map) {
  return map.size() == 1 && map.begin()->first.IsScalar() && map.begin()->second.IsNull() &&
         map.begin()->first.Scalar().find("..") != std::string::npos;
}

Node convert(const YAML::Node& yaml, const std::string& file, int depth, int& nodes) {
  const Mark mark{file, yaml.Mark().line >= 0 ? yaml.Mark().line + 1 : 0};
  if (depth > kMaxDepth)
    user_error(mark.text(), ": more than ", kMaxDepth, " nested groups and lists (an alias inside itself?)");
  if (++nodes > kMaxNodes)
    user_error(mark.text(), ": more than ", with_thousands(kMaxNodes), " values, with aliases expanded: expected settings");
  switch (yaml.Type()) {
    case YAML::NodeType::Undefined:
    case YAML::NodeType::Null: return Node::null(mark);
    case YAML::NodeType::Scalar: return Node::scalar(text_of(yaml, mark), mark, yaml.Tag() == "!");
    case YAML::NodeType::Sequence: {
      std::vector<Node> items;
      for (const YAML::Node& item : yaml) items.push_back(convert(item, file, depth + 1, nodes));
      return Node::sequence(std::move(items), mark);
    }
    case YAML::NodeType::Map: {
      if (is_range(yaml))
        user_error(mark.text(), ": ", kQuoteBraces, "'{", printable(yaml.begin()->first.Scalar()), "}'");
      std::vector<Node::Member> members;
      std::set<std::string> seen;
      for (const auto& member : yaml) {
        if (!member.first.IsScalar()) user_error(mark.text(), ": a key must be a plain name");
        const std::string& key = text_of(member.first, mark);
        if (!seen.insert(key).second)
          user_error(file, ":", member.first.Mark().line + 1, ": ", printable(key), " is given twice in the same group");
        members.emplace_back(key, convert(member.second, file, depth + 1, nodes));
      }
      return Node::map(std::move(members), mark);
    }
  }
  return Node::null(mark);
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) user_error(path, ": cannot be read");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Returns the file that `extends: name` refers to. Looks in the folder of the extending file first, then resolves the name as
// --config does.
std::string extended_file(const Node& name, const std::string& path) {
  if (!name.is_scalar()) user_error(name.mark().text(), ": extends: expected a file name or a list of them, got ", name.describe());
  namespace fs = std::filesystem;
  const fs::path beside = fs::path(path).parent_path() / name.text();
  std::error_code missing;
  if (fs::exists(beside, missing) && !fs::is_directory(beside, missing)) return beside.lexically_normal().string();
  try {
    return find_configuration(name.text());
  } catch (const UserError& error) {
    user_error(name.mark().text(), ": extends: ", error.what());
  }
}

Node load(const std::string& path, std::vector<std::string>& chain) {
  const std::string canonical = std::filesystem::weakly_canonical(path).string();
  for (const std::string& above : chain)
    if (above == canonical) user_error(path, ": extends itself");
  chain.push_back(canonical);
  Node node = parse_yaml(read_text(path), path);
  if (node.is_null() && chain.size() > 1) node = Node::map();  // an extended file may be empty
  if (!node.is_map()) user_error(path, ": expected settings (key: value), got ", node.describe());
  Node base = Node::map();
  if (const Node* extends = node.find("extends"); extends != nullptr) {
    const std::vector<Node> files = extends->is_sequence() ? extends->items() : std::vector<Node>{*extends};
    for (const Node& file : files) base.merge(load(extended_file(expand_environment(file, "extends"), path), chain));
    node.erase("extends");
  }
  chain.pop_back();
  base.merge(node);
  return base;
}

// Returns true for UTF-8 without control characters. yaml-cpp accepts control characters, and treats text with zero bytes as UTF-16
// or UTF-32.
bool is_text(const std::string& text) {
  const auto is_control = [](char c) { return (c >= 0 && c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7F; };
  return is_utf8(text) && std::none_of(text.begin(), text.end(), is_control);
}

void check_encoding(const std::string& text, const std::string& file) {
  if (is_text(text)) return;
  const std::vector<std::string> lines = split(text, '\n');
  const auto bad = std::find_if_not(lines.begin(), lines.end(), is_text);
  user_error(file, ":", bad - lines.begin() + 1, ": not valid YAML: expected UTF-8 without control characters");
}

// Refuses text with more than one document, because YAML::Load() ignores all documents after the first one.
void check_documents(const std::string& text, const std::string& file) {
  const std::vector<std::string> lines = split_lines(text);
  bool begun = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view line = strip(lines[i]);
    if (begun && lines[i].starts_with("---") && strip(lines[i].substr(3, 1)).empty())
      user_error(file, ":", i + 1, ": not valid YAML: --- begins a second document: expected only one");
    begun = begun || !(line.empty() || line[0] == '#' || line[0] == '%');
  }
}

// Returns where the word around line[at] begins. Braces and everything inside them belong to the word.
std::size_t begin_of_word(const std::string& line, std::size_t at) {
  for (; at > 0; --at) {
    if (line[at - 1] == '}') at = std::min(line.rfind('{', at - 1), at - 1) + 1;
    else if (std::string_view(" \t[{,'\"").find(line[at - 1]) != std::string_view::npos) break;
  }
  return at;
}

std::size_t end_of_word(const std::string& line, std::size_t at) {
  for (; at < line.size(); ++at) {
    if (line[at] == '{') at = std::min(line.find('}', at), line.size() - 1);
    else if (std::string_view(" \t\r]},'\"").find(line[at]) != std::string_view::npos) break;
  }
  return at;
}

// Returns a clearer explanation of the error at this column than the parser's message, or an empty string if there is none.
std::string what_is_wrong(const std::string& line, std::size_t column) {
  const std::size_t first = line.find_first_not_of(" \t");
  if (line.substr(0, first).find('\t') != std::string::npos) return "the line begins with a tab: indent it with spaces";
  if (column >= line.size()) return "";
  const std::size_t begin = begin_of_word(line, column);
  const std::string word = line.substr(begin, end_of_word(line, column) - begin);
  const bool is_brace_and_text = word.find('{') != std::string::npos && word.find('}') != std::string::npos &&
                                 !(word.front() == '{' && word.find('}') == word.size() - 1);
  return is_brace_and_text ? concat(kQuoteBraces, "'", word, "'") : "";
}

[[noreturn]] void refuse_yaml(const YAML::Exception& error, const std::string& text, const std::string& file) {
  const std::vector<std::string> lines = split(text, '\n');
  const bool has_place = error.mark.line >= 0 && static_cast<std::size_t>(error.mark.line) < lines.size();
  const std::string wrong =
      has_place && error.mark.column >= 0
          ? what_is_wrong(lines[static_cast<std::size_t>(error.mark.line)], static_cast<std::size_t>(error.mark.column))
          : "";
  user_error(Mark{file, error.mark.line >= 0 ? error.mark.line + 1 : 0}.text(), ": not valid YAML: ",
             printable(wrong.empty() ? error.msg : wrong));
}

bool needs_quotes(const Node& node) {
  const std::string& text = node.text();
  if (text.empty() || text != std::string(strip(text))) return true;
  // A string that YAML would parse as another type keeps its quotes.
  if (node.quoted()) {
    if (text == "null" || text == "~" || text == "true" || text == "false" || text == "yes" || text == "no") return true;
    if (text.find_first_not_of("0123456789+-.eE_") == std::string::npos) return true;
  }
  return text.find_first_of(":#{}[],&*!|>'\"%@`\n\t\\") != std::string::npos || text[0] == '-' || text[0] == '?';
}

// Returns whether yaml-cpp would write `text` without quotes and then read it back as another text. This happens to text that starts with
// a document marker, or that contains carriage returns or byte order marks.
bool needs_quotes_besides(const std::string& text) {
  return text.starts_with("...") || text.starts_with("---") || text.find('\r') != std::string::npos ||
         text.find("\xEF\xBB\xBF") != std::string::npos;
}

void emit_text(const std::string& text, bool quoted, YAML::Emitter& out) {
  if (quoted || needs_quotes_besides(text)) out << YAML::DoubleQuoted;
  out << text;
}

void emit(const Node& node, YAML::Emitter& out) {
  switch (node.kind()) {
    case Node::Kind::null: out << YAML::Null; break;
    case Node::Kind::scalar: emit_text(node.text(), node.quoted() && needs_quotes(node), out); break;
    case Node::Kind::sequence: {
      bool flat = true;
      for (const Node& item : node.items()) flat = flat && (item.is_scalar() || item.is_null());
      out << (flat ? YAML::Flow : YAML::Block) << YAML::BeginSeq;
      for (const Node& item : node.items()) emit(item, out);
      out << YAML::EndSeq;
      break;
    }
    case Node::Kind::map:
      if (node.members().empty()) out << YAML::Flow;
      out << YAML::BeginMap;
      for (const auto& [key, value] : node.members()) {
        out << YAML::Key;
        emit_text(key, false, out);
        out << YAML::Value;
        emit(value, out);
      }
      out << YAML::EndMap;
      break;
  }
}

}  // namespace

Node parse_yaml(const std::string& text, const std::string& file) {
  check_encoding(text, file);
  check_documents(text, file);
  try {
    int nodes = 0;
    return convert(YAML::Load(text), file, 0, nodes);
  } catch (const YAML::Exception& error) {
    refuse_yaml(error, text, file);
  }
}

Node load_yaml(const std::string& name, const std::vector<std::string>& overrides) {
  const std::string path = find_configuration(name);
  std::vector<std::string> chain;
  Node node = load(path, chain);
  for (const std::string& assignment : overrides) apply_override(node, assignment);
  return expand_environment(node);
}

std::string to_yaml(const Node& node) {
  YAML::Emitter out;
  emit(node, out);
  return std::string(out.c_str()) + "\n";
}

}  // namespace tessera::config

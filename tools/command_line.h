#pragma once

#include <cmath>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "tools/extra_words.h"
#include <tessera/base/error.h>
#include <tessera/base/version.h>

namespace tessera::tools {

/// A subcommand. `app` already belongs to the program and has all its options. If the user chose the subcommand, the program calls `run`.
struct Command {
  CLI::App* app;
  std::function<int()> run;
};

/// Checks that an option's value is a number above 0. (The message of CLI11's own check would contain the largest double, which has 309
/// digits.)
inline CLI::Validator positive_number() {
  return CLI::Validator(
      [](std::string& text) {
        double value = 0;
        const bool right = CLI::detail::lexical_cast(text, value) && value > 0 && std::isfinite(value);
        return right ? "" : "expected a number above 0, got " + text;
      },
      "POSITIVE");
}

/// Adds an option and shows its default value in the help.
template <class T>
CLI::Option* add_default(CLI::App& app, const std::string& name, T& value, const std::string& help) {
  return app.add_option(name, value, help)->capture_default_str();
}

/// Adds --threads, which has the same form and help in all programs.
template <class T>
CLI::Option* add_threads(CLI::App& app, T& threads) {
  return app.add_option("--threads", threads, "CPU threads to use (default: one per core)")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
}

/// Throws UserError if the folder of an output file does not exist. Called before a long measurement, so that its result is not lost.
inline void check_folder_of(const std::string& option, const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    user_error(option, " ", path, ": there is no folder ", folder.string());
}

/// Returns the long option names of an app, including those of the subcommands that the user chose.
inline std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) out.push_back("--" + name);
  for (const CLI::App* chosen : app.get_subcommands())
    for (std::string& name : option_names(*chosen)) out.push_back(std::move(name));
  return out;
}

/// Parses a program's arguments, including --version. Returns std::nullopt if the program should continue. After --help or --version,
/// prints the requested text and returns the exit code 0. After a mistake, prints one line that begins with the program's name, and returns
/// the exit code 2. `check` may also throw CLI::ParseError. `describe` returns the error message for words that belong to no option.
inline std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv, const std::function<void()>& check = {},
                                          const DescribeExtraWords& describe = describe_extra_words) {
  app.set_version_flag("--version", version_line());
  const std::string name = argc > 0 ? std::filesystem::path(argv[0]).filename().string() : app.get_name();
  app.failure_message(
      [name](const CLI::App*, const CLI::Error& error) { return concat(name, ": ", error.what(), " (see --help)\n"); });
  std::vector<std::string> words;
  try {
    words = spread_overrides({argv, argv + argc});
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    app.parse(static_cast<int>(pointers.size()), pointers.data());
    if (check) check();
  } catch (const CLI::ExtrasError&) {
    std::cerr << name << ": " << describe(app.remaining(/*recurse=*/true), words, option_names(app))
              << " (see --help)\n";
    return 2;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace tessera::tools

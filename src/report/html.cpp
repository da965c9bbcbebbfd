#include <cctype>

#include "src/report/html.h"
#include <tessera/base/error.h>
#include <tessera/base/text.h>

namespace tessera::report {
namespace {

const char* style() {
  return R"css(
:root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--ink:#1c1e21;--soft:#565b63;--line:#e3e4e6;--accent:#2b6cb0;--good:#1f9d55;--bad:#b23b3b;--stopped:#b7791f;--shade:#1c1e2138;--bar:#dfe7f0;--heat:#f5952b}
@media (prefers-color-scheme:dark){:root{--bg:#15171a;--card:#1d2024;--ink:#e6e7e9;--soft:#9aa0a8;--line:#31353b;--accent:#6cb2f5;--good:#3ecf7e;--bad:#e57373;--stopped:#e8b44c;--shade:#000b;--bar:#2b3440;--heat:#a85a0a}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:26px;margin:0 0 4px;letter-spacing:-.01em;overflow-wrap:break-word}
h2{font-size:19px;margin:40px 0 4px}
h3{font-size:15px;margin:24px 0 8px}
p{margin:4px 0 12px;overflow-wrap:break-word}.soft{color:var(--soft)}
nav{margin:14px 0 0}nav a{display:inline-block;margin:0 8px 6px 0;padding:2px 10px;border:1px solid var(--line);border-radius:99px;color:var(--accent);text-decoration:none;font-size:13px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:16px 18px;margin:12px 0}
.grid{display:grid;gap:12px}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(200px,1fr));gap:10px 24px;margin:0}
.facts .wide{grid-column:1/-1}.facts dt{font-size:12px;color:var(--soft)}.facts>div{min-width:0}.facts dd{margin:0;font-weight:550;overflow-wrap:break-word}
.numbers{display:grid;grid-template-columns:repeat(auto-fill,minmax(172px,1fr));gap:12px;margin:12px 0}
.number{min-width:0;background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 14px}
.number b{display:block;font-size:24px;font-weight:650;font-variant-numeric:tabular-nums;letter-spacing:-.02em}
.number span{font-size:12px;color:var(--soft);overflow-wrap:break-word}
/* A shadow at the side where a table continues; its first column stays in place. */
.scroll{overflow-x:auto;background:linear-gradient(to right,var(--card) 40%,transparent) left/40px 100% no-repeat local,linear-gradient(to left,var(--card) 40%,transparent) right/40px 100% no-repeat local,linear-gradient(to right,var(--shade),transparent) left/16px 100% no-repeat scroll,linear-gradient(to left,var(--shade),transparent) right/16px 100% no-repeat scroll,var(--card)}
.scroll tr>:first-child{position:sticky;left:0;background:var(--card)}
td.n,th.n{white-space:nowrap}td.setting,td.path{min-width:120px;max-width:320px;overflow-wrap:break-word}td.whole{white-space:nowrap}
.fit{width:fit-content;max-width:100%}table tr.part th{padding-top:14px;font-size:14px;color:var(--ink)}tr.part:first-child th{padding-top:0}tr.part th span{font-weight:400;font-size:13px;color:var(--soft)}
.run{white-space:nowrap}.run i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:5px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}
small{font-size:12px}th,td{text-align:left;padding:5px 10px;border-bottom:1px solid var(--line);vertical-align:top}
th{font-weight:600;font-size:12px;color:var(--soft)}td.n,th.n{text-align:right}
tr:last-child td{border-bottom:0}
img{display:block;width:100%;border-radius:6px;background:var(--bar)}img.tiny{image-rendering:pixelated}
.examples{grid-template-columns:repeat(auto-fill,minmax(250px,1fr))}
.example{display:grid;grid-template-columns:96px 1fr;gap:12px;background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px}
.bars.columns{display:block;columns:2;column-gap:18px}
.bars{font-size:12px;display:grid;gap:3px;align-content:start}
.bar{display:grid;grid-template-columns:minmax(0,1fr) auto;gap:0 8px}.bar span{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.bar div{grid-column:1/-1;height:6px;background:var(--bar);border-radius:3px;overflow:hidden}.bar i{display:block;height:100%;background:var(--accent)}
.bar.right span{font-weight:650}.bar.right div{outline:1.5px solid var(--ink);outline-offset:1px}
.truth{font-size:13px;font-weight:550}.sign{font-weight:700;margin-right:5px}.sign.good{color:var(--good)}.sign.bad{color:var(--bad)}.truth .dot{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:5px;border:1px solid var(--line)}
details{margin-top:12px}.notes{margin:4px 0 12px;padding-left:20px;color:var(--soft);overflow-wrap:break-word}
.tag{display:inline-block;font-size:12px;padding:0 8px;border-radius:99px;border:1px solid currentColor;white-space:nowrap}
.tag.good{color:var(--good)}.tag.bad{color:var(--bad)}.tag.stopped{color:var(--stopped)}
.sheet{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 14px;margin:12px 0}
.sheet header{display:flex;justify-content:space-between;gap:12px;align-items:baseline;margin-bottom:8px}
.sheet q{font-weight:550}
.row{display:grid;grid-template-columns:repeat(6,minmax(0,1fr));gap:10px}
figure{margin:0;font-size:12px;color:var(--soft)}figcaption{margin-top:3px;overflow-wrap:break-word}
.box{border:3px solid transparent;border-radius:9px;padding:1px}.box.right{border-color:var(--good)}.box.wrong{border-color:var(--line)}
.sheet .two{display:grid;grid-template-columns:132px 1fr;gap:16px}
ol.found{margin:0;padding:0;list-style:none;display:grid;gap:5px;font-size:14px}
ol.found li{border:2px solid var(--line);border-radius:7px;padding:3px 9px;display:flex;justify-content:space-between;gap:12px}
ol.found li.right{border-color:var(--good)}ol.found small{color:var(--soft);font-variant-numeric:tabular-nums}
.slots{display:grid;grid-template-columns:repeat(5,minmax(0,1fr));gap:12px}
.readable{display:grid;grid-template-columns:repeat(6,minmax(0,1fr));gap:12px;align-items:start}.cloud{grid-column:span 2;color:var(--ink)}
.heat{display:flex;align-items:center;gap:6px;font-variant-numeric:tabular-nums}.heat i{flex:1;height:7px;border-radius:3px}
.tokens{font-size:13px;margin-top:4px}.tokens span{padding:1px 0}
.overlays{grid-template-columns:repeat(auto-fill,minmax(min(440px,100%),1fr))}
.overlay{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px}
.overlay .three{display:grid;grid-template-columns:repeat(3,1fr);gap:8px}
.legend{display:flex;flex-wrap:wrap;gap:2px 12px;font-size:12px;margin-top:6px;color:var(--soft);overflow-wrap:break-word}
.legend i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:5px}
.charts .card{margin:0}.charts{grid-template-columns:repeat(auto-fill,minmax(min(440px,100%),1fr))}
svg{display:block;width:100%;height:auto}svg text{fill:var(--soft);font-size:13px}svg .axis{stroke:var(--line)}
.confusion td,.confusion th{padding:3px 5px;text-align:center;font-size:11px;border:1px solid var(--line)}
.confusion{width:auto}.confusion th.side{text-align:right}.confusion th.top{writing-mode:vertical-rl;transform:rotate(180deg);text-align:left;vertical-align:bottom}
footer{margin-top:48px;color:var(--soft);font-size:12px}
@media (max-width:640px){main{padding:20px 14px 48px}.card{padding:12px 14px}.bars.columns{columns:1}svg text{font-size:19px}th,td{padding:5px 7px}.scroll td:first-child{max-width:42vw;overflow-wrap:break-word}.scroll td.whole:first-child{white-space:normal}.sheet header{flex-wrap:wrap}.row,.slots,.readable{grid-template-columns:repeat(3,minmax(0,1fr))}.sheet .two{grid-template-columns:1fr}.sheet .two figure{max-width:160px}}
)css";
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : repair_utf8(text))
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

std::string breakable(std::string_view text) {
  const auto plain = [&](std::size_t i) { return i < text.size() && std::isalpha(static_cast<unsigned char>(text[i])) != 0; };
  std::string out;
  std::size_t begin = 0;
  const auto cut = [&](std::size_t end) {
    out += escape(text.substr(begin, end - begin)) + "<wbr>";
    begin = end;
  };
  for (std::size_t i = 1; i < text.size(); ++i) {
    const char before = text[i - 1];
    const bool behind = ((before == '/' || before == '_') && text[i] != before) || (i > 1 && before == '.' && plain(i));
    if (behind || text[i] == '@') cut(i);
  }
  return out + escape(text.substr(begin));
}

std::string number_card(const std::string& value, const std::string& name) {
  return concat("<div class=\"number\"><b>", escape(value), "</b><span>", breakable(name), "</span></div>");
}

std::string fact_card(const std::vector<std::pair<std::string, std::string>>& facts) {
  if (facts.empty()) return "";
  std::string html = "<div class=\"card\"><dl class=\"facts\">";
  for (const auto& [name, value] : facts) {
    html += concat("<div", value.size() > 40 ? " class=\"wide\"" : "", "><dt>", escape(name), "</dt><dd>",
                   breakable(value), "</dd></div>");
  }
  return html + "</dl></div>";
}

std::string page(const std::string& title, const std::string& head, const std::string& body) {
  return concat(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>",
      escape(title), "</title>", head, "<style>", style(), "</style></head><body><main>", body,
      "</main></body></html>\n");
}

}  // namespace tessera::report

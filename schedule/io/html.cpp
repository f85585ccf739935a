#include "schedule/io/html.h"

#include "schedule/io/html_viewer.h"
#include "schedule/io/json_reader.h"
#include "schedule/io/style.h"

namespace penstock::schedule {
namespace {

Json fill(Colour colour) {
  return {{"fill", to_hex(colour)}, {"ink", is_dark(colour) ? "#fff" : "#000"}};
}

Json styles() {
  Json out;
  for (const PassStyle& style : kPassStyles) {
    out[std::string(1, letter_of(style.opcode))] = {{"name", style.name},
                                                    {"band", style.band_name}};
  }
  out["O"] = {{"name", "optimizer step"}, {"band", "none"}};
  return out;
}

// By letter, then by chunk.
Json shades(int chunks) {
  Json out;
  for (const PassStyle& style : kPassStyles) {
    Json& list = out[std::string(1, letter_of(style.opcode))] = Json::array();
    for (int chunk = 0; chunk < chunks; ++chunk) {
      list.push_back(fill(shade(style.colour, chunk, chunks)));
    }
  }
  out["O"] = Json::array({fill(kOptimizerColour)});
  return out;
}

// What the script needs to know of each opcode, in the enum's order.
Json opcodes() {
  Json out = Json::array();
  for (const Opcode opcode : kAllOpcodes) {
    const bool compute = lane(opcode) == Lane::kCompute;
    out.push_back({name(opcode), compute ? std::string(1, letter_of(opcode)) : ""});
  }
  return out;
}

// An array, since a large pipe has millions of them: the script's decode() names the places.
Json span_json(const TraceSpan& span) {
  const auto& [opcode, chunk, micro_batch, buffer] = span.instruction;
  return {static_cast<int>(opcode), chunk.value, micro_batch.value, buffer.value,
          span.stage.value,         span.step,   span.start,        span.end};
}

Json trace_json(const Trace& trace) {
  const TraceSummary summary = summarize(trace);
  Json ranks = Json::array();
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    Json spans = Json::array();
    for (const TraceSpan& span : trace.ranks[r].spans) spans.push_back(span_json(span));
    ranks.push_back({{"name", trace.ranks[r].name},
                     {"idle", summary.ranks[r].idle},
                     {"peak", summary.ranks[r].peak_activations},
                     {"spans", std::move(spans)}});
  }
  Json arrows = Json::array();
  for (const Transfer& t : transfers(trace)) {
    arrows.push_back({t.from_rank, t.from_span, t.to_rank, t.to_span});
  }
  return {{"title", trace.title},
          {"start", summary.start},
          {"end", summary.end},
          {"makespan", summary.makespan},
          {"bubble", summary.bubble_ratio()},
          {"shades", shades(num_chunks(trace))},
          {"ranks", std::move(ranks)},
          {"transfers", std::move(arrows)}};
}

// JSON inside a script element: the only text that could end the element early is "</".
std::string embedded(const Json& json) {
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  for (std::size_t at = 0; (at = text.find('<', at)) != std::string::npos;) {
    text.replace(at, 1, "\\u003c");
  }
  return text;
}

}  // namespace

std::string to_html(std::span<const Trace> traces) {
  Json list = Json::array();
  for (const Trace& trace : traces) list.push_back(trace_json(trace));
  const Json data = {{"styles", styles()},
                     {"opcodes", opcodes()},
                     {"activation", kActivationColour},
                     {"gradient", kGradientColour},
                     {"traces", std::move(list)}};
  std::string page(kViewerHead);
  page.append(embedded(data)).append(kViewerTail);
  return page;
}

}  // namespace penstock::schedule

// @ts-check
// The language in which rows are picked: `lr < 0.01 and (optimizer = adam or not name ~ test)`. The
// portal's table has the same (crates/services/src/runs/results/expression.rs); tests/browser/expressions.json holds both to
// one meaning. Faults are thrown with the place of their character, counted from 1.

export class Fault extends Error {
  constructor(at, message) {
    super(message);
    this.at = at;
  }
}

const SIGNS = ["<=", ">=", "!=", "==", "!~", "=", "<", ">", "~"];
const ENDS = new Set([..."()<>=!~,;\"'`"]);
const WHICH = ["last", "best", "min", "max", "param", "metric"];
const LONGEST = 2000,
  DEEPEST = 50;

// {kind: "all"}, {kind: "named", text}, {kind: "compare", column: {which, text, at}, sign, value},
// {kind: "not", inner}, {kind: "and" | "or", left, right}; each with the places `from` and `to` of its text.
// A value is {nothing: true}, {number, text} or {text}.
export function parse(text) {
  const characters = [...text];
  if (characters.length > LONGEST) throw new Fault(LONGEST + 1, `Longer than ${LONGEST} characters.`);
  const tokens = tokensOf(characters);
  let [next, depth] = [0, 0];
  const peek = () => tokens[next];
  const fault = (message) => new Fault(peek().at, message);
  const take = () => tokens[next++];
  const close = () => {
    if (peek().kind !== "close") throw fault("A closing parenthesis is missing here.");
    return take();
  };

  function joined(kind, part) {
    let left = part();
    while (peek().kind === kind) {
      take();
      const right = part();
      left = { kind, left, right, from: left.from, to: right.to };
    }
    return left;
  }
  const any = () => joined("or", every);
  const every = () => joined("and", one);

  function one() {
    depth += 1;
    if (depth > DEEPEST) throw fault("Too many nested parentheses.");
    const from = peek().at;
    let read;
    if (peek().kind === "not") {
      take();
      const inner = one();
      read = { kind: "not", inner, from, to: inner.to };
    } else if (peek().kind === "open") {
      take();
      const inner = any();
      read = { ...inner, from, to: close().to };
    } else read = condition();
    depth -= 1;
    return read;
  }

  function condition() {
    const first = peek();
    if (first.kind !== "word" && first.kind !== "quoted")
      throw fault(`Unexpected ${told(first)}; expected a column or a part of a name.`);
    take();
    let column = { which: null, text: first.text, at: first.at };
    if (first.kind === "word" && WHICH.includes(first.text.toLowerCase()) && peek().kind === "open") {
      take();
      const named = peek();
      if (named.kind !== "word" && named.kind !== "quoted") throw fault("A column is missing here.");
      take();
      close();
      column = { which: first.text.toLowerCase(), text: named.text, at: named.at };
    }
    if (peek().kind !== "sign") {
      if (column.which) throw fault("A comparison is missing here.");
      return { kind: "named", text: column.text.toLowerCase(), from: first.at, to: first.to };
    }
    const { text: sign } = take();
    const given = peek();
    if (given.kind !== "word" && given.kind !== "quoted") throw fault(`A value is missing after “${sign}”.`);
    const isNothing = given.kind === "word" && given.text.toLowerCase() === "none";
    if (isNothing && sign !== "=" && sign !== "!=") throw fault("“none” can only be compared with = or !=.");
    take();
    const number =
      given.kind === "word" && /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(given.text) ? Number(given.text) : NaN;
    const value = isNothing
      ? { nothing: true }
      : Number.isFinite(number)
        ? { number, text: given.text }
        : { text: given.text };
    return { kind: "compare", column, sign, value, from: first.at, to: given.to };
  }

  if (peek().kind === "end") return { kind: "all", from: 1, to: 1 };
  const read = any();
  if (peek().kind !== "end") throw fault(`Unexpected ${told(peek())}; join conditions with “and” or “or”.`);
  return read;
}

const told = ({ kind, text }) => (kind === "end" ? "end" : `“${{ open: "(", close: ")" }[kind] ?? text ?? kind}”`);

function tokensOf(characters) {
  const found = [];
  let at = 0;
  const put = (kind, length, text) => {
    found.push({ kind, text, at: at + 1, to: at + 1 + length });
    at += length;
  };
  while (at < characters.length) {
    const c = characters[at];
    const sign = SIGNS.find((sign) => characters.slice(at, at + sign.length).join("") === sign);
    if (/\s/.test(c)) at += 1;
    else if (sign) put("sign", sign.length, sign === "==" ? "=" : sign);
    else if (c === "(") put("open", 1);
    else if (c === ")") put("close", 1);
    else if (c === "," || c === ";") put("and", 1);
    else if (c === '"' || c === "'" || c === "`") {
      const end = characters.indexOf(c, at + 1);
      if (end < 0) throw new Fault(at + 1, `The quotation mark ${c} is not closed.`);
      put("quoted", end + 1 - at, characters.slice(at + 1, end).join(""));
    } else {
      let end = at;
      while (end < characters.length && !/\s/.test(characters[end]) && !ENDS.has(characters[end])) end += 1;
      if (end === at) throw new Fault(at + 1, `Unexpected character “${c}”.`);
      const word = characters.slice(at, end).join("");
      const key = word.toLowerCase();
      if (["and", "or", "not"].includes(key)) put(key, end - at);
      else put("word", end - at, word);
    }
  }
  found.push({ kind: "end", at: characters.length + 1, to: characters.length + 1 });
  return found;
}

// Whether a row is picked. `cell(column)` is a number, a text, or null for nothing.
export function picks(node, name, cell) {
  switch (node.kind) {
    case "all":
      return true;
    case "named":
      return name.toLowerCase().includes(node.text);
    case "not":
      return !picks(node.inner, name, cell);
    case "and":
      return picks(node.left, name, cell) && picks(node.right, name, cell);
    case "or":
      return picks(node.left, name, cell) || picks(node.right, name, cell);
    default:
      return compare(cell(node.column), node.sign, node.value);
  }
}

const TESTS = {
  "<": (a, b) => a < b,
  "<=": (a, b) => a <= b,
  ">": (a, b) => a > b,
  ">=": (a, b) => a >= b,
  "=": (a, b) => a === b,
  "!=": (a, b) => a !== b,
  "~": (a, b) => a.includes(b),
  "!~": (a, b) => !a.includes(b),
};

function compare(cell, sign, value) {
  const isMissing = cell === null || cell === undefined;
  if (value.nothing || isMissing) {
    const both = isMissing && value.nothing === true;
    return sign === "=" ? both : sign === "!=" || sign === "!~" ? !both : false;
  }
  if (typeof cell === "number" && value.number !== undefined && !sign.includes("~"))
    return TESTS[sign](cell, value.number);
  return TESTS[sign](String(cell).toLowerCase(), value.text.toLowerCase());
}

// Every column that is named.
export function columnsOf(node) {
  if (node.kind === "compare") return [node.column];
  return [node.inner, node.left, node.right].filter(Boolean).flatMap(columnsOf);
}

// The conditions that all must hold, of an expression that is nothing but that.
export function conditions(node) {
  return node.kind === "and"
    ? [...conditions(node.left), ...conditions(node.right)]
    : node.kind === "all"
      ? []
      : [node];
}

// A name as the language reads it back.
export function quoted(text) {
  const isPlain =
    text !== "" &&
    ![...text].some((c) => ENDS.has(c) || /\s/.test(c)) &&
    !["and", "or", "not", "none"].includes(text.toLowerCase());
  const mark = ["`", '"', "'"].find((mark) => !text.includes(mark)) ?? "`";
  return isPlain ? text : `${mark}${text}${mark}`;
}

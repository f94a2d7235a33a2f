// The lexer of marked alone: the page makes no HTML from text.
export { Lexer } from 'marked';

//! Who may enter and what they may do, over HTTP: sign-in, cookies, proof of origin, tokens,
//! the matrix of routes and people, and the shapes of errors.

mod audit;
mod browser_sessions;
mod matrix;
mod origin;
mod routes_by_scope;
mod scene;
mod scopes;
mod shapes;
mod sign_in;
mod streams;
mod tokens;

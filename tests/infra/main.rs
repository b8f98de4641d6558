//! The deployment's template, `infra/template.yaml`, compared with the code that it deploys.

mod costs;
mod entry;
mod functions;
mod roles;
mod routes;
mod tables;
mod template;

//! The deployment as it is written down: `infra/template.yaml`, read beside the code that it deploys.

mod costs;
mod entry;
mod functions;
mod roles;
mod routes;
mod tables;
mod template;

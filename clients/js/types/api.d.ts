export interface paths {
    "/": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns the console's page. Absent with `CONSOLE=off`. */
        get: operations["getConsole"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agent/chat": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Sends a message to an agent and returns the events of the run. */
        post: operations["chat"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agent/chat/{threadId}/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Returns the events of the thread's live run from its beginning.
         * @description The format is that of the AI SDK unless `format` names another.
         */
        get: operations["resumeThread"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agent/mcp": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Opens the event stream of a session.
         * @description The Model Context Protocol over Streamable HTTP, revisions 2026-07-28, 2025-11-25 and 2025-06-18.
         */
        get: operations["mcpListen"];
        put?: never;
        /**
         * Sends one JSON-RPC message.
         * @description The Model Context Protocol over Streamable HTTP, revisions 2026-07-28, 2025-11-25 and 2025-06-18.
         */
        post: operations["mcpSend"];
        /**
         * Ends a session.
         * @description The Model Context Protocol over Streamable HTTP, revisions 2026-07-28, 2025-11-25 and 2025-06-18.
         */
        delete: operations["mcpEnd"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agent/tools/audit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the tool calls made through the MCP server of an agent owned by the caller. */
        get: operations["toolAudit"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the company's agents, with secrets masked. */
        get: operations["listAgents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns an agent of the company, with secrets masked. */
        get: operations["getAgent"];
        /**
         * Creates an agent owned by the caller, or replaces one.
         * @description An absent secret or `***` keeps the stored secret; an empty secret or a change of its URL clears it. `id`, `companyId` and `ownerId` are optional. An unknown field, tool, provider or document is refused with its path; `warnings` lists settings without effect.
         */
        put: operations["putAgent"];
        post?: never;
        /** Deletes an agent owned by the caller with its memory, and revokes its tokens. */
        delete: operations["deleteAgent"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/assignments": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the scheduled tool calls of an agent owned by the caller. */
        get: operations["listAssignments"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/assignments/{assignmentId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns an assignment of an agent owned by the caller. */
        get: operations["getAssignment"];
        /**
         * Creates or replaces an assignment.
         * @description The assignment is saved even if the scheduler is unavailable; `sync` then reports it, and the scheduler is updated later.
         */
        put: operations["putAssignment"];
        post?: never;
        /** Deletes an assignment and cancels its jobs. */
        delete: operations["deleteAssignment"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/capabilities": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns the capabilities of an agent, as AG-UI's `AgentCapabilities`. */
        get: operations["getCapabilities"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/feedback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Lists the feedback on an agent's messages, newest first.
         * @description For the agent's owner. It names neither the people nor the threads.
         */
        get: operations["listFeedback"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/memories": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the entries of an agent's memory about the caller. */
        get: operations["listMemories"];
        put?: never;
        post?: never;
        /** Deletes all entries of an agent's memory about the caller. */
        delete: operations["deleteMemories"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/memories/{memoryId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns an entry of an agent's memory about the caller. */
        get: operations["getMemory"];
        /** Creates or replaces an entry of an agent's memory about the caller. */
        put: operations["putMemory"];
        post?: never;
        /** Deletes an entry of an agent's memory about the caller. */
        delete: operations["deleteMemory"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/owner": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** Hands an agent over to another owner; for admins of the company. */
        put: operations["putAgentOwner"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/preview": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Previews a turn of an agent with a role that is not saved.
         * @description For users who may save the role. It is validated as in a `PUT` of the agent, except for prices; a secret that is absent or `***` is the saved one. Nothing is stored or sent. The other fields are those of a chat request.
         */
        post: operations["previewRole"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/retrieve": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Shows the fragments that a message would retrieve, and how they were chosen.
         * @description Retrieves for agents without `enableAutoRag` too. Nothing is sent.
         */
        post: operations["retrieve"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/shared-memories": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the entries of an agent's memory that the company shares. */
        get: operations["listSharedMemories"];
        put?: never;
        post?: never;
        /** Deletes all shared entries from the memory of an agent owned by the caller. */
        delete: operations["deleteSharedMemories"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/shared-memories/{memoryId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns an entry of an agent's memory that the company shares. */
        get: operations["getSharedMemory"];
        /** Creates or replaces a shared entry in the memory of an agent owned by the caller. */
        put: operations["putSharedMemory"];
        post?: never;
        /** Deletes a shared entry from the memory of an agent owned by the caller. */
        delete: operations["deleteSharedMemory"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/threads": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Lists the threads of visitors with an agent, latest activity first.
         * @description For the agent's owner.
         */
        get: operations["listAgentThreads"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the tokens of an agent owned by the caller, without their texts. */
        get: operations["listTokens"];
        put?: never;
        /** Creates a token for an agent owned by the caller. */
        post: operations["createToken"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/tokens/{tokenId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Revokes a token of an agent owned by the caller. Idempotent. */
        delete: operations["revokeToken"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/tools": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Lists an agent's tools with their states; for its owner.
         * @description The states of a tool server's tools are those of the latest comparison, by a run or a request for discovery. No request is sent to the tool server.
         */
        get: operations["listAgentTools"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/tools/discover": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Lists the tools of a tool server, and compares them with the pinned definitions; for the agent's owner. */
        post: operations["discoverAgentTools"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/tools/pin": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pins the definitions of a tool server's tools; for the agent's owner.
         * @description The server's list is read again: a fingerprint that is not the one of the server's definition is 409. Tools without a fingerprint are no longer pinned.
         */
        post: operations["pinAgentTools"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/agents/{id}/tools/{name}/test": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Calls a tool that the agent's role defines, as the caller; for the agent's owner.
         * @description The tool is really called, without an approval, and the call is recorded in the audit log.
         */
        post: operations["testAgentTool"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/approvals": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Lists tool calls that wait for a decision, or have waited for one, newest first.
         * @description The list contains the calls about which the caller may decide, those of the caller's latest runs, and those that the caller has decided in the runs of others.
         */
        get: operations["listApprovals"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/approvals/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns an approval. */
        get: operations["getApproval"];
        put?: never;
        /**
         * Decides about a tool call.
         * @description After the last decision of a run, the turn continues in the background.
         */
        post: operations["decideApproval"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/assistants/context-status": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Deprecated; does nothing. */
        get: operations["contextStatus"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/assistants/context/{action}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Deprecated; does nothing. */
        get: operations["contextAction"];
        put?: never;
        /** Deprecated; does nothing. */
        post: operations["contextActionOf"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/budgets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Lists the budgets of the company with their used amounts.
         * @description For admins of the company. The operator sets the budget of the company itself.
         */
        get: operations["listBudgets"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/budgets/{kind}/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Returns a budget with its used amounts.
         * @description For admins of the company. The operator sets the budget of the company itself.
         */
        get: operations["getBudget"];
        /**
         * Creates or replaces a budget. Amounts used in the current periods are kept.
         * @description For admins of the company. The operator sets the budget of the company itself.
         */
        put: operations["putBudget"];
        post?: never;
        /**
         * Deletes a budget.
         * @description For admins of the company. The operator sets the budget of the company itself.
         */
        delete: operations["deleteBudget"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/coding": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns the state of the caller's subscription. */
        get: operations["getSubscription"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/coding/sign-in": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Begins a sign-in to the caller's own subscription.
         * @description The user enters the code at the issuer's page. The service polls the issuer until then.
         */
        post: operations["beginSubscriptionSignIn"];
        /** Deletes the tokens of the caller's subscription, then revokes them at the issuer. */
        delete: operations["signOutOfSubscription"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/coding/sign-in/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns the status of a sign-in. */
        get: operations["getSubscriptionSignIn"];
        put?: never;
        post?: never;
        /** Cancels a sign-in. */
        delete: operations["cancelSubscriptionSignIn"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/console/links": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Creates a link that signs a user in to the console, once.
         * @description For a product's backend, which redirects its user to the link.
         */
        post: operations["createConsoleLink"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/console/session": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns the signed-in user, and the features of the application. */
        get: operations["getConsoleSession"];
        put?: never;
        /**
         * Exchanges a link's code for a session in a cookie.
         * @description The request must have the application's own `Origin`.
         */
        post: operations["signInToConsole"];
        /** Ends the session of the cookie. */
        delete: operations["signOutOfConsole"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/cron": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Reports which service runs jobs; with `run=true`, runs due jobs if the scheduler does not. */
        get: operations["cron"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/documents": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the company's documents, without their texts. */
        get: operations["listDocuments"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/documents/reindex": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Embeds documents of the company that lack vectors of the embedding model; for admins of the company.
         * @description Processes one page of the documents. Until they are embedded, searches find them by their words.
         */
        post: operations["reindexDocuments"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/documents/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Returns a document of the company.
         * @description The entity tag is that of the document. It does not change when the document is embedded.
         */
        get: operations["getDocument"];
        /** Creates or replaces a document. */
        put: operations["putDocument"];
        post?: never;
        /**
         * Deletes a document with its versions.
         * @description A document that agents name is 409 with their ids as `agentIds`, unless `force` is true.
         */
        delete: operations["deleteDocument"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/documents/{id}/content": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns the original of a document. */
        get: operations["getDocumentContent"];
        /**
         * Uploads the original of a document.
         * @description Creates the document, or replaces its text and its original. The media type is one whose text can be extracted, such as plain text; any other is 415. The text is extracted in the background; `GET` of the document has the state. The same original is not extracted again by the same extractor, and an extraction of it that has not ended continues.
         */
        put: operations["putDocumentContent"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/documents/{id}/owner": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** Hands a document over to another owner; for admins of the company. */
        put: operations["putDocumentOwner"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/documents/{id}/reindex": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Extracts the text of a document's original again.
         * @description The current text is used until the new one is extracted.
         */
        post: operations["reindexDocument"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/documents/{id}/text": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Returns a part of a document's text.
         * @description Positions inside of a character are moved to its beginning.
         */
        get: operations["getDocumentText"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/documents/{id}/versions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the replaced versions of a document, at most 20. */
        get: operations["listDocumentVersions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/documents/{id}/versions/{revision}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns a replaced version of a document. */
        get: operations["getDocumentVersion"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/documents/{id}/versions/{revision}/restore": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Gives a document the title and text of a replaced version.
         * @description The replaced text and original are stored as a version.
         */
        post: operations["restoreDocument"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/files": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the caller's files. */
        get: operations["listFiles"];
        put?: never;
        /**
         * Uploads a file for messages.
         * @description The body is the file: a picture (PNG, JPEG, GIF, WebP), a recording (MP3, WAV), or a document whose text can be extracted. The content decides the type, not the header; anything else is 415. A message names the file in a part such as `{"type": "image", "source": {"type": "file", "value": "<fileId>"}}`.
         */
        post: operations["createFile"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/files/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns the content of a file of the caller. */
        get: operations["getFile"];
        put?: never;
        post?: never;
        /** Deletes a file of the caller, also if a thread refers to it. */
        delete: operations["deleteFile"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/limits": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Returns the limits of the caller with their used amounts.
         * @description They include the budget of the user and the default limit of runs; for an admin, also the limits of the company.
         */
        get: operations["getLimits"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/models": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Returns the catalogue of models, and those of the company's providers: limits, capabilities and prices.
         * @description Unknown members are absent.
         */
        get: operations["listCatalogModels"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/providers": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Lists the providers of the company, with their keys masked.
         * @description For admins of the company.
         */
        get: operations["listProviders"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/providers/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Returns a provider of the company, with its key masked.
         * @description For admins of the company.
         */
        get: operations["getProvider"];
        /**
         * Creates or replaces a provider of the company. A changed key is used from the next call on.
         * @description For admins of the company.
         */
        put: operations["putProvider"];
        post?: never;
        /**
         * Deletes a provider of the company. While agents name it, this is 409 with some of them in `agents`.
         * @description For admins of the company.
         */
        delete: operations["deleteProvider"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/pulse/callback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Runs a due occurrence of a job; called by the scheduler.
         * @description Requires both the bearer token and the signature of Standard Webhooks.
         */
        post: operations["pulseCallback"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/pulse/jobs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the caller's own jobs, the newest first by default. */
        get: operations["listOwnJobs"];
        put?: never;
        /**
         * Schedules a tool call or a turn of an agent for the caller.
         * @description The agent is one of the caller's company. A user has at most 100 open jobs.
         */
        post: operations["scheduleOwnJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/pulse/jobs/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns one of the caller's own jobs with its latest attempts. */
        get: operations["getOwnJob"];
        put?: never;
        post?: never;
        /**
         * Cancels one of the caller's own jobs. Idempotent.
         * @description A job of an assignment cannot be cancelled by itself: 409.
         */
        delete: operations["cancelOwnJob"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/pulse/jobs/{id}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Pauses one of the caller's own jobs. */
        post: operations["pauseOwnJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/pulse/jobs/{id}/redrive": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Delivers the last discarded occurrence of one of the caller's own jobs again. */
        post: operations["redriveOwnJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/pulse/jobs/{id}/reschedule": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Replaces the schedule of one of the caller's own jobs. */
        post: operations["rescheduleOwnJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/pulse/jobs/{id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resumes one of the caller's own jobs. */
        post: operations["resumeOwnJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/pulse/next": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Returns the next occurrences of a schedule; nothing is scheduled. */
        post: operations["nextOccurrences"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/pulse/status": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Returns the state of the connection to the scheduler.
         * @description The status is 200 even if no scheduler is configured or reachable.
         */
        get: operations["pulseStatus"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the caller's runs, newest first. */
        get: operations["listRuns"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns a run of the caller. */
        get: operations["getRun"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{id}/bundle": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Returns a run with its inputs and events, for `agentd replay`.
         * @description The digest is of the bytes of `record`. Secrets of the role are masked.
         */
        get: operations["getRunBundle"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cancels a run, in any process. The incomplete answer is stored.
         * @description A run that has ended stays as it is.
         */
        post: operations["cancelRun"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{id}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Returns a run's events after the given one, and further events as they occur.
         * @description In any format, the events equal those of the first response after the given one.
         */
        get: operations["getRunEvents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/runs/{id}/prompt": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns the manifest of a run's prompt. */
        get: operations["getRunPrompt"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/settings": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the settings of the company that have a value. */
        get: operations["listCompanySettings"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/settings/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns a setting of the company. */
        get: operations["getCompanySetting"];
        /**
         * Sets a setting of the company. It applies from the next tool call on.
         * @description For admins of the company.
         */
        put: operations["putCompanySetting"];
        post?: never;
        /**
         * Deletes a setting of the company.
         * @description For admins of the company.
         */
        delete: operations["deleteCompanySetting"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/svcchat/debugPrompt": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns the prompt and the request of an agent, with or without a message. */
        get: operations["debugPrompt"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/svcchat/previewPrompt": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns the request that a message would send. */
        get: operations["previewPrompt"];
        put?: never;
        /** Returns the request that a chat body would send. */
        post: operations["previewPromptOf"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/svcchat/private": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Alias of `/api/agent/chat` for older clients; also accepts `chatInput` and `sessionId`. */
        post: operations["privateChat"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the caller's threads, latest activity first. */
        get: operations["listThreads"];
        put?: never;
        /** Creates a thread, possibly with messages from elsewhere. */
        post: operations["createThread"];
        /**
         * Deletes up to 1,000 of the caller's threads.
         * @description At least one of the parameters is required. If `more` is true, further threads match.
         */
        delete: operations["deleteThreads"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/export": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns all threads of the caller with all of their stored data. */
        get: operations["exportThreads"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns a thread of the caller with a page of its messages. */
        get: operations["getThread"];
        put?: never;
        post?: never;
        /** Deletes a thread with its messages and runs. */
        delete: operations["deleteThread"];
        options?: never;
        head?: never;
        /** Renames or archives a thread, or selects another branch. */
        patch: operations["patchThread"];
        trace?: never;
    };
    "/api/threads/{id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Cancels the thread's live run, if there is one. */
        post: operations["cancelThread"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{id}/export": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Returns a thread with all of its stored data.
         * @description As Markdown, the path to the head.
         */
        get: operations["exportThread"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{id}/fork": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Copies the path to a message into a new thread. */
        post: operations["forkThread"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{id}/messages": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Adds messages to a thread without a run.
         * @description Without `parentId`, 409 `THREAD_BUSY` while a run is in progress, and `INTERRUPTS_OPEN` while one waits for decisions.
         */
        post: operations["addThreadMessages"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{id}/messages/{node}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Erases the content of a message. Later prompts do not contain it. */
        delete: operations["deleteThreadMessage"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/threads/{id}/messages/{node}/feedback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** Rates a message of a thread. */
        put: operations["putFeedback"];
        post?: never;
        /** Removes the rating of a message. */
        delete: operations["deleteFeedback"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Returns the usage of model and tool calls, summed up.
         * @description Users see their own usage, the owner of an agent also that of the agent, and an admin that of the company.
         */
        get: operations["listUsage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/usage/runs/{runId}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Returns the usage of the calls of a run.
         * @description For the run's user, the owner of its agent and the admins of the company.
         */
        get: operations["getRunUsage"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/assets/{path}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns a file of the console's page, which never changes under its path. */
        get: operations["getConsoleAsset"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/chat": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Runs a turn with a model and the request's tools. */
        post: operations["runtimeChat"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/coding-auth/device": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Begins a sign-in to the coding subscription (RFC 8628). */
        post: operations["codingAuthDevice"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/coding-auth/refresh": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Exchanges a refresh token for new tokens.
         * @description The member `error` of a problem with the code `OAUTH_ERROR` is `invalid_grant`, and `reason` is `expired`, `reused`, `revoked` or `unknown`.
         */
        post: operations["codingAuthRefresh"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/coding-auth/revoke": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Revokes a token (RFC 7009). */
        post: operations["codingAuthRevoke"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/coding-auth/token": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Polls a sign-in once.
         * @description The member `error` of a problem with the code `OAUTH_ERROR` is `authorization_pending`, `slow_down`, `access_denied` or `expired_token`.
         */
        post: operations["codingAuthToken"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/coding-chat": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Sends a request to the model API of a coding subscription. */
        post: operations["codingChat"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/health": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Status, version and uptime of the service. */
        get: operations["health"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/jobs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists jobs, the newest first by default. */
        get: operations["listJobs"];
        put?: never;
        /** Creates a job. */
        post: operations["createJob"];
        /**
         * Cancels all jobs of a user's tool or assignment, or of an agent.
         * @description Requires `companyId` and `agentId`, or `companyId`, `userId` and one of `toolId` and `assignmentId`. Jobs are cancelled in batches; after an error the request can be repeated.
         */
        delete: operations["cancelJobs"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/jobs/count": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Counts the jobs that match a filter. */
        get: operations["countJobs"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/jobs/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns a job with its latest attempts and its dead letters. */
        get: operations["getJob"];
        put?: never;
        post?: never;
        /** Cancels a job. A job in a final state is not changed. */
        delete: operations["cancelJob"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/jobs/{id}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Pauses a job: no delivery begins until it is resumed. */
        post: operations["pauseJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/jobs/{id}/redrive": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Redrives the last discarded occurrence. */
        post: operations["redriveJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/jobs/{id}/reschedule": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Replaces the schedule of a job. */
        post: operations["rescheduleJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/jobs/{id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resumes a paused job. */
        post: operations["resumeJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/livez": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Liveness of the process. */
        get: operations["live"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/messenger/call": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Calls a method of the messenger's bot API. */
        post: operations["messengerCall"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Metrics in OpenMetrics text format. */
        get: operations["metrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Readiness for traffic. */
        get: operations["ready"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/chat/completions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Sends a conversation to an agent, as a chat completion of OpenAI's API. */
        post: operations["createChatCompletion"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/models": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Lists the agents of the token as models. */
        get: operations["listModels"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/models/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns one agent of the token as a model. */
        get: operations["getModel"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/widget.js": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns the script that adds the chat widget to a page. Absent with `WIDGET=off`. */
        get: operations["getWidget"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/widget/{path}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Returns a module of the chat widget, which never changes under its path. */
        get: operations["getWidgetModule"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** @description One page of agents. */
        AgentPage: {
            /** @description The agents by id, secrets masked. */
            agents: components["schemas"]["RoleBlock"][];
            /** @description Cursor of the next page; absent on the last page. */
            nextCursor?: string | null;
        };
        /** @description Agent runtime and model: the seven `agentServer*` fields, model parameters and fallbacks. */
        AgentServer: {
            /** @description Base URL of the runtime. */
            agentServerUrl?: string | null;
            /** @description Name of the provider that the runtime uses. */
            agentServerProvider?: string | null;
            /** @description Name of the model at the provider. */
            agentServerModel?: string | null;
            /** @description Enables the model's reasoning output. */
            agentServerEnableThinking?: boolean | null;
            /** @description Restricts the allowed tools to these names. */
            agentServerTools?: string[] | null;
            /** @description URL of a local model runtime, sent as `baseUrl`. */
            agentServerLocalUrl?: string | null;
            /** @description API key of a hosted provider, sent as `apiKey`. */
            agentServerApiKey?: components["schemas"]["Secret"] | null;
            /** @description Parameters of the model's calls by their names, such as `temperature`. No secrets. */
            parameters?: {
                [key: string]: unknown;
            };
            /** @description Prices in dollars for a million tokens: `input`, `cachedInput`, `cacheWrite` and `output`. No secrets. */
            prices?: {
                [key: string]: unknown;
            };
            /** @description Limits on the calls of the runtime. */
            retry?: components["schemas"]["RetrySettings"] | null;
            /** @description Agent servers for the runs that this one fails to begin. They inherit neither address nor key, and have no fallbacks of their own. */
            fallbacks?: components["schemas"]["AgentServer"][];
            /**
             * Format: uint32
             * @description Time in milliseconds in which a fallback's first content must arrive.
             */
            firstContentMs?: number | null;
        };
        /** @description An agent in a response. */
        AgentView: {
            /** @description The agent's identifier. */
            id: string;
            /**
             * @description The agent's name.
             * @default
             */
            name: string;
            /**
             * @description The user who owns the agent.
             * @default
             */
            ownerId: string;
            /** @description The company that the agent belongs to. */
            companyId: string;
            /**
             * @description The agent's prompt, tools and backend.
             * @default {}
             */
            content: components["schemas"]["RoleContent"];
            /** @description Modules below the role, which name backends. */
            children?: components["schemas"]["Container"][];
            /** @description Settings that are legal and have no effect; in the answer to a `PUT` only. */
            warnings?: components["schemas"]["RoleFinding"][];
        };
        /** @description One page of documents that are embedded or extracted again. */
        AnnouncedDocuments: {
            /** @description Identifiers of the documents that wait to be embedded or extracted. */
            documents: string[];
            /** @description Cursor of the next page; absent on the last page. */
            nextCursor?: string | null;
        };
        /** @description An error as OpenAI's API has it. */
        ApiError: {
            error: {
                /** @description Human-readable explanation of the error. */
                message: string;
                /** @description Kind of error, such as `invalid_request_error`. */
                type: string;
                /** @description Path of the invalid field. */
                param: string | null;
                /** @description Machine-readable error code. Codes may be added. */
                code: string;
            };
        };
        /** @description Permissions of an API token. */
        ApiGrant: {
            /** @description The user on whose behalf the agents answer. */
            userId: string;
            /** @description The agents that may be chatted with. */
            agents: string[];
            /** @description Rate caps in addition to the user's limits; absent means none. */
            caps?: components["schemas"]["RunCaps"] | null;
        };
        /** @description Rule by which calls of some tools wait for approval. The first rule of a role that matches a tool applies. */
        ApprovalRule: {
            /** @description Names of the tools. */
            tools?: string[];
            /** @description A tool must have at least one of these hints. */
            annotations?: components["schemas"]["ToolHint"][];
            /**
             * @description The people who may decide.
             * @default user
             */
            by: components["schemas"]["Approver"];
            /**
             * @description Treatment of a call while no user can be asked.
             * @default deny
             */
            unattended: components["schemas"]["UnattendedCalls"];
            /**
             * Format: uint64
             * @description Time for the decision, in milliseconds; a day if absent.
             */
            ttlMs?: number | null;
            /** @description True if the person may change the arguments; absent means true. */
            editable?: boolean | null;
            /** @description Question for the person. */
            message?: string | null;
        };
        /** @description The people who may decide about a call. */
        Approver: "user" | "visitor" | "owner" | "company";
        /** @description One page of assignments. */
        AssignmentPage: {
            /** @description The assignments by id. */
            assignments: components["schemas"]["AssignmentView"][];
            /** @description Cursor of the next page; absent on the last page. */
            nextCursor?: string | null;
        };
        /** @description Schedule of an assignment: one of `cron`, `everyMs` and `executeAt`. */
        AssignmentSchedule: {
            /** @description True if the assignment runs; a disabled one has no job. */
            enabled: boolean;
            /** @description Runs repeatedly by a cron expression. */
            cron?: string | null;
            /**
             * Format: uint64
             * @description Runs repeatedly at this interval in milliseconds.
             */
            everyMs?: number | null;
            /** @description Runs once at an RFC 3339 time; without an offset, it is local to `timezone`. */
            executeAt?: string | null;
            /** @description IANA name of the time zone for `cron` and for an `executeAt` without an offset. */
            timezone?: string | null;
            /** @description Daylight-saving policy for `cron`. */
            dst?: components["schemas"]["DstPolicy"] | null;
        };
        /** @description An assignment and its synchronization state. */
        AssignmentView: {
            /** @description Identifier, unique in the company. */
            id: string;
            /** @description User for whom the tool runs. */
            userId: string;
            /** @description Company of the user. */
            companyId: string;
            /** @description Agent that calls the tool or runs the turn. */
            agentId: string;
            /**
             * @description Kind of work; a tool call by default.
             * @default tool
             */
            kind: components["schemas"]["JobKind"];
            /** @description Name of the tool; required for the kind `tool`. */
            toolId?: string | null;
            /** @description User message of the turn; required for the kind `agent`. */
            message?: string | null;
            /** @description Arguments of the tool. */
            arguments?: {
                [key: string]: unknown;
            } | null;
            /** @description Todo list that the work is about. */
            todoListId?: string | null;
            /** @description Times at which the assignment runs. */
            schedule: components["schemas"]["AssignmentSchedule"];
            /** @description Synchronization with the scheduler. */
            sync: components["schemas"]["SyncView"];
        };
        /** @description A finished delivery attempt. */
        AttemptView: {
            /**
             * Format: uint64
             * @description Number of the occurrence, from 1.
             */
            occurrence: number;
            /**
             * Format: uint32
             * @description Number of the attempt at the occurrence, from 1.
             */
            attempt: number;
            /** @description Time at which the attempt ended: RFC 3339 in UTC with milliseconds. */
            endedAt: string;
            /**
             * Format: uint64
             * @description Duration in milliseconds; absent if the attempt's worker never reported an outcome.
             */
            durationMs?: number | null;
            /**
             * Format: uint16
             * @description HTTP status of the response, if there was one.
             */
            status?: number | null;
            /** @description Error text; absent if the attempt succeeded. */
            error?: string | null;
        };
        /** @description A sign-in that the user can confirm. */
        BegunSignInView: {
            /** @description Identifier of the sign-in. */
            signInId: string;
            /** @description Code that the user enters at `verificationUri`, after comparing it with the one shown here. */
            userCode: string;
            /** @description Page of the issuer. */
            verificationUri: string;
            /**
             * Format: uint64
             * @description Remaining lifetime in seconds.
             */
            expiresIn: number;
            /**
             * Format: uint64
             * @description Minimum interval in seconds between two changes of the status.
             */
            interval: number;
            /** @description Text to show with the code. */
            notice: string;
        };
        /** @description Result of cancelling a job. */
        CancelResult: {
            /**
             * @description True if a delivery is in progress that could not be stopped.
             * @default false
             */
            delivering: boolean;
        };
        /** @description The number of jobs that were cancelled. */
        CancelledJobs: {
            /** Format: uint64 */
            cancelled: number;
        };
        /** @description Callers whose clients may define tools of their own. */
        ClientTools: "session" | "all" | "off";
        /** @description Role of a user in the company, which decides which items of other users the user may change. */
        CompanyRole: "viewer" | "editor" | "admin";
        /** @description A module below a role, by name. */
        Container: {
            /** @constant */
            name: "AgentServer";
            content?: components["schemas"]["AgentServer"] | null;
        } | {
            /** @constant */
            name: "WorkflowConnector";
            content?: components["schemas"]["WorkflowConnector"] | null;
        } | {
            /** @constant */
            name: "EmbeddedAI";
            content?: components["schemas"]["EmbeddedAi"] | null;
        } | {
            /** @constant */
            name: "SubscriptionConnector";
            content?: components["schemas"]["SubscriptionConnector"] | null;
        } | {
            name: string;
            content?: Record<string, unknown> | null;
        };
        /** @description Markup of an extracted text. */
        ContentFormat: "plain" | "markdown";
        /** @description State of the extraction of an upload's text. */
        ContentStatus: "pending" | "extracting" | "ready" | "failed";
        /** @description Storage of an agent's conversations. */
        ConversationSettings: {
            /** @description If false, no conversation is stored. */
            store?: boolean | null;
            /** @description Callers that may define tools of their own; absent means `session`. */
            clientTools?: components["schemas"]["ClientTools"] | null;
            /**
             * Format: uint16
             * @description Days after the last activity at which a thread is deleted, unless the server deletes it earlier.
             */
            retentionDays?: number | null;
            /** @description Effect of a client's disconnect on runs whose request does not say; absent means `cancel`. */
            onDisconnect?: components["schemas"]["OnDisconnect"] | null;
            /**
             * Format: uint32
             * @description Time in milliseconds without a client after which a run is cancelled, if its request does not say; absent means 0.
             */
            graceMs?: number | null;
            /** @description Treatment of a request in a thread whose run has not ended, if the request does not say; absent means `reject`. */
            onBusy?: components["schemas"]["OnBusy"] | null;
        };
        /** @description The other agents that this agent may consult, and how. */
        Council: string | {
            /**
             * @description Purpose of the council.
             * @default
             */
            purpose: string;
            /**
             * @description Members of the council.
             * @default []
             */
            members: components["schemas"]["CouncilMember"][];
        };
        /** @description A member of a council. */
        CouncilMember: {
            /** @description The member's name. */
            name: string;
            /**
             * @description The member's field of expertise.
             * @default
             */
            expertise: string;
        };
        /** @description A request to create a job, without its schedule. */
        CreateJobRequest: {
            /** @description The work to do and its user; the callback sends it back unchanged. */
            payload: components["schemas"]["JobPayload"];
            /** @description Idempotency key: within the company, requests with the same key and body create one job. */
            idempotencyKey?: string | null;
            /**
             * Format: uint32
             * @description Maximum number of attempts per occurrence, from 1 to 100; 12 by default.
             */
            maxAttempts?: number | null;
            /** @description Policy for occurrences that were missed because no scheduler was running. */
            misfire?: components["schemas"]["MisfirePolicy"] | null;
            /** @description Policy for occurrences that come due while another one is being delivered. */
            overlap?: components["schemas"]["OverlapPolicy"] | null;
            /**
             * Format: uint64
             * @description Maximum number of open jobs of the user, this one included; unlimited by default. At the limit, a new job is 409 with
             *     `limit`. A repeated request with the same idempotency key gets its job, and may name another limit.
             */
            maxOpenJobs?: number | null;
        };
        /** @description A new token, with its secret text. */
        CreatedToken: {
            /** @description The public identifier, a UUID of version 7. */
            id: string;
            /** @description The company of the agent. */
            companyId: string;
            /** @description The agent that the token is valid for; of an API token, the first of its agents. */
            agentId: string;
            /**
             * Format: date-time
             * @description Creation time, to the millisecond. RFC 3339 in JSON, like the other times.
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description Expiry time; the token never expires if absent.
             */
            expiresAt?: string;
            /**
             * Format: date-time
             * @description Revocation time, if the token was revoked.
             */
            revokedAt?: string;
            /** @description Label given by the creator. */
            label?: string | null;
            /** @description The token's text, which is shown only once. */
            token: string;
        } & (components["schemas"]["WidgetGrant"] | components["schemas"]["McpGrant"] | components["schemas"]["ApiGrant"]);
        /** @description Credits of a subscription. */
        Credits: {
            /** @description True if there are credits. */
            hasCredits: boolean;
            /** @description True if they are unlimited. */
            unlimited: boolean;
            /** @description Amount, in the vendor's format. */
            balance?: string | null;
        };
        /** @description Result of one run of the fallback. */
        CronRun: {
            /** @description Source of the due occurrences: `scheduler`, `memory` while it is unreachable, or `local` if none is configured. */
            source: string;
            /**
             * Format: uint
             * @description Number of due occurrences among those examined.
             */
            due: number;
            /**
             * Format: uint
             * @description Number of occurrences completed by this call.
             */
            done: number;
            /**
             * Format: uint
             * @description Number of occurrences that were already complete.
             */
            doneBefore: number;
            /**
             * Format: uint
             * @description Number of occurrences that are being run by another process, or rejected because too many runs are in
             *     progress.
             */
            busy: number;
            /**
             * Format: uint
             * @description Number of failed occurrences; they can be retried.
             */
            failed: number;
            /**
             * Format: uint
             * @description Number of due occurrences left for the next call.
             */
            left: number;
        };
        /** @description The fallback scheduler's status and the result of its run. */
        CronStatus: {
            /** @description Always `ok`. */
            status: string;
            /** @description The primary scheduler: always `pulse`. */
            canonicalScheduler: string;
            /** @description Result of the run; absent if none was requested. */
            run?: components["schemas"]["CronRun"] | null;
        };
        /** @description A discarded occurrence of a periodic job. */
        DeadLetterView: {
            /** Format: uint64 */
            occurrence: number;
            scheduledFor: string;
            /** @description Time at which the occurrence was discarded. */
            discardedAt: string;
            error: string;
        };
        DiscoverRequest: {
            /** @description Id of the tool server in the role. */
            serverId: string;
        };
        /** @description Text with a title. */
        Document: {
            /** @description Identifier of the document, unique in its company. */
            id: string;
            /** @description Company of the document. */
            companyId: string;
            /** @description User who owns the document. Absent in documents that every editor of the company may change. */
            ownerId?: string | null;
            /**
             * @description Title of the document.
             * @default
             */
            title: string;
            /**
             * @description Text of the document, usually Markdown. Empty for an upload whose text is longer than 400 KiB or is not extracted
             *     yet.
             * @default
             */
            text: string;
            /**
             * Format: uint64
             * @description Number of changes since the document was created; set by the server.
             */
            revision?: number;
            /** @description User who has made the latest change, if one has; set by the server. */
            updatedBy?: string | null;
            /**
             * @description Uploaded original from which the text is extracted, if there is one; set by the server. A change of the text
             *     replaces it.
             */
            content?: components["schemas"]["DocumentContent"] | null;
        };
        /** @description Uploaded original of a document and the state of the extraction of its text; set by the server. */
        DocumentContent: {
            /**
             * @description Media type of the original.
             * @default
             */
            mediaType: string;
            /**
             * Format: uint64
             * @description Size of the original, in bytes.
             * @default 0
             */
            bytes: number;
            /**
             * @description SHA-256 of the original, in hexadecimal.
             * @default
             */
            sha256: string;
            /**
             * @description Identifier of the upload, under which the original is stored.
             * @default
             */
            generation: string;
            /**
             * @description State of the extraction.
             * @default pending
             */
            status: components["schemas"]["ContentStatus"];
            /**
             * Format: uint32
             * @description Number of pages, sheets or slides; absent for a format without them.
             */
            pages?: number | null;
            /** @description Pages, from 1, that are pictures without text; at most the first 1,000. */
            needsOcr?: number[];
            /** @description Reason of a failed extraction, or for which an extraction gave no text. */
            error?: string | null;
            /**
             * Format: uint64
             * @description Size of the extracted text, in bytes. A text of more than 400 KiB is not in the document's `text`.
             */
            textBytes?: number | null;
            /** @description Markup of the extracted text. */
            textFormat?: components["schemas"]["ContentFormat"] | null;
            /** @description Identifier of the extraction, under which the positions of pages and a long text are stored. */
            textGeneration?: string | null;
            /** @description Extractor of the text and its version. */
            extractor?: string | null;
        };
        /** @description One page of documents without their texts. */
        DocumentPage: {
            /** @description The documents' metadata, by id. */
            documents: components["schemas"]["DocumentSummary"][];
            /** @description Cursor of the next page; absent on the last page. */
            nextCursor?: string | null;
        };
        /** @description Summary of a document in a list. */
        DocumentSummary: {
            /** @description Identifier of the document. */
            id: string;
            /** @description Title of the document. */
            title: string;
            /**
             * Format: uint
             * @description Size of the text in bytes.
             */
            bytes: number;
            /**
             * Format: uint64
             * @description Version of the document.
             */
            version: number;
            /** @description State of the extraction of an upload's text. */
            status?: components["schemas"]["ContentStatus"] | null;
        };
        /** @description Replaced version of a document. */
        DocumentVersion: {
            /**
             * Format: uint64
             * @description Revision of the document.
             */
            revision: number;
            /** @description Time at which this version was written. */
            updatedAt: string;
            /** @description User who wrote this version, if known. */
            updatedBy?: string | null;
            /**
             * @description Title of this version.
             * @default
             */
            title: string;
            /**
             * @description Text of this version.
             * @default
             */
            text: string;
        };
        /** @description Replaced version of a document in a list. */
        DocumentVersionSummary: {
            /**
             * Format: uint64
             * @description Revision of the document.
             */
            revision: number;
            /** @description Time at which this version was written. */
            updatedAt: string;
            /** @description User who wrote this version, if known. */
            updatedBy?: string | null;
            /** @description Title of this version. */
            title: string;
            /**
             * Format: uint
             * @description Size of the text in bytes.
             */
            bytes: number;
        };
        /**
         * @description Daylight-saving policy of a job at fixed times of day. A job with `*` in its seconds, minutes or hours, including
         *     `*\/5`, follows elapsed time instead: it does not run in a gap and runs again in a fold.
         */
        DstPolicy: {
            /**
             * @description Policy for times that the clock skips.
             * @default runAfter
             */
            gap: components["schemas"]["GapPolicy"];
            /**
             * @description Policy for times that the clock repeats.
             * @default first
             */
            fold: components["schemas"]["FoldPolicy"];
        };
        /** @description A message before the query. */
        EarlierMessage: {
            /** @description Author of the message. Only messages of `user` have an effect. */
            role: string;
            /** @description Text of the message. */
            content: string;
        };
        /** @description The model behind an `EmbeddedAI` container. */
        EmbeddedAi: {
            /** @description `auto` (the default), `anthropic`, `local`, `openai`, `openai-responses`, `ollama`, or the id of a company's provider. */
            provider?: string | null;
            /** @description Name of the model at the provider. */
            model?: string | null;
            /** @description URL of the provider. */
            baseUrl?: string | null;
            /** @description API key of the provider. */
            apiKey?: components["schemas"]["Secret"] | null;
            /** @description Enables or disables the model's reasoning; absent leaves the model's default. */
            enableThinking?: boolean | null;
            /** @description Level of the model's reasoning in the provider's terms, such as `low`. It overrides `enableThinking`. */
            reasoningEffort?: string | null;
            /** @description Parameters of the model's calls by their names, such as `temperature`. No secrets. */
            parameters?: {
                [key: string]: unknown;
            };
            /** @description Prices in dollars for a million tokens: `input`, `cachedInput`, `cacheWrite` and `output`. No secrets. */
            prices?: {
                [key: string]: unknown;
            };
            /** @description Format of the answers, of this model and of its fallbacks. */
            responseFormat?: components["schemas"]["ResponseFormat"] | null;
            /** @description Limits on the repetition of a call. */
            retry?: components["schemas"]["RetrySettings"] | null;
            /** @description Models for the calls that this one fails to answer, in their order. */
            fallbacks?: components["schemas"]["FallbackModel"][];
        };
        /** @description Failure to embed chunks of a document. */
        EmbeddingFailure: {
            /** @description Cause of the failure. */
            reason: components["schemas"]["EmbeddingFailureReason"];
            /**
             * Format: uint32
             * @description Number of attempts in a row that have failed in the process that made the last one.
             */
            failures: number;
            /**
             * @description Earliest time of the next attempt, RFC 3339 in UTC; absent if the document is not tried again until it changes, until it
             *     is embedded again on demand, or until the process restarts.
             */
            retryAt?: string | null;
        };
        /** @description Cause of a failure to embed chunks of a document. */
        EmbeddingFailureReason: "unavailable" | "invalidAnswer" | "rejected" | "tooLarge";
        /** @description A model for the calls that the container's own model fails to answer. It inherits neither address nor key. */
        FallbackModel: {
            /** @description `auto` (the default), `anthropic`, `local`, `openai`, `openai-responses`, `ollama`, or the id of a company's provider. */
            provider?: string | null;
            /** @description Name of the model at the provider. */
            model?: string | null;
            /** @description URL of the provider. */
            baseUrl?: string | null;
            /** @description API key of the provider. */
            apiKey?: components["schemas"]["Secret"] | null;
            /** @description Level of the model's reasoning in the provider's terms, such as `low`. */
            reasoningEffort?: string | null;
            /**
             * Format: uint32
             * @description Time in milliseconds in which an answer's first content must arrive.
             */
            firstContentMs?: number | null;
            /** @description Parameters of the model's calls by their names, such as `temperature`. No secrets. */
            parameters?: {
                [key: string]: unknown;
            };
            /** @description Prices in dollars for a million tokens: `input`, `cachedInput`, `cacheWrite` and `output`. No secrets. */
            prices?: {
                [key: string]: unknown;
            };
        };
        /** @description One page of the caller's files. */
        FilePage: {
            /** @description The files, oldest first. */
            files: components["schemas"]["FileView"][];
            /** @description Cursor of the next page; absent on the last page. */
            nextCursor?: string | null;
        };
        /** @description A file of the caller. */
        FileView: {
            /** @description Identifier of the file. */
            fileId: string;
            /** @description Name of the file. */
            name?: string | null;
            /** @description Media type, by the content. */
            mimeType: string;
            /**
             * Format: uint64
             * @description Size in bytes.
             */
            bytes: number;
            /** @description SHA-256 in hexadecimal. */
            sha256: string;
            /** @description Time after which the file is deleted unless a thread refers to it, RFC 3339. */
            expiresAt: string;
        };
        /** @description Policy for wall-clock times repeated when the clock is set back. */
        FoldPolicy: "first" | "both";
        /** @description Policy for wall-clock times skipped when the clock is set forward. */
        GapPolicy: "runAfter" | "skip";
        /** @description Status of a document's index. */
        IndexStatus: {
            /**
             * Format: uint
             * @description Number of chunks.
             */
            chunks: number;
            /** @description ISO 639-1 code of the language, or `und`. */
            language: string;
            /** @description Identifier of the embedding model that made the vectors. */
            embedder?: string | null;
            /**
             * Format: uint
             * @description Number of chunks with a vector.
             */
            embedded: number;
            /** @description Last failure to embed the chunks that have no vector; absent once some of them have one. */
            embeddingFailure?: components["schemas"]["EmbeddingFailure"] | null;
        };
        /** @description A document with the status of its index. */
        IndexedDocument: {
            /** @description Identifier of the document, unique in its company. */
            id: string;
            /** @description Company of the document. */
            companyId: string;
            /** @description User who owns the document. Absent in documents that every editor of the company may change. */
            ownerId?: string | null;
            /**
             * @description Title of the document.
             * @default
             */
            title: string;
            /**
             * @description Text of the document, usually Markdown. Empty for an upload whose text is longer than 400 KiB or is not extracted
             *     yet.
             * @default
             */
            text: string;
            /**
             * Format: uint64
             * @description Number of changes since the document was created; set by the server.
             */
            revision?: number;
            /** @description User who has made the latest change, if one has; set by the server. */
            updatedBy?: string | null;
            /**
             * @description Uploaded original from which the text is extracted, if there is one; set by the server. A change of the text
             *     replaces it.
             */
            content?: components["schemas"]["DocumentContent"] | null;
            /** @description The document's index; absent until it is indexed. */
            indexed?: components["schemas"]["IndexStatus"] | null;
        };
        /** @description The number of jobs that match a filter. */
        JobCount: {
            /** Format: uint64 */
            count: number;
        };
        /** @description A job with its policies and dead letters. */
        JobDetails: {
            /** @description Job id. */
            jobId: string;
            /** @description State of the job. */
            state: components["schemas"]["JobState"];
            /** @description Work to do, and the user for whom it is done. */
            payload: components["schemas"]["JobPayload"];
            /** @description Times at which the job runs. */
            schedule: components["schemas"]["Schedule"];
            /** @description Due time of the next attempt, or of the last one if the job is final: RFC 3339 in UTC with milliseconds. */
            executeAt: string;
            /**
             * Format: uint64
             * @description Number, from 1, of the occurrence that is waiting or running, or of the last one.
             */
            occurrence: number;
            /**
             * Format: uint32
             * @description Number of started attempts at this occurrence.
             */
            attempt: number;
            /** @description Error of the last attempt; absent if it succeeded. */
            lastError?: string | null;
            /** @description Creation time: RFC 3339 in UTC with milliseconds. */
            createdAt: string;
            /** @description The latest finished attempts, oldest first. */
            attempts?: components["schemas"]["AttemptView"][];
            /** @description The occurrence's scheduled time. */
            scheduledFor: string;
            /** @description True if the job is paused. The state does not show it for a job that is final. */
            paused: boolean;
            misfire: components["schemas"]["MisfirePolicy"];
            overlap: components["schemas"]["OverlapPolicy"];
            /**
             * Format: uint32
             * @description Maximum number of attempts per occurrence.
             */
            maxAttempts: number;
            /** @description Occurrences of a periodic job that were discarded, oldest first. */
            deadLetters?: components["schemas"]["DeadLetterView"][];
        };
        /** @description Kind of work that a job does. */
        JobKind: "tool" | "agent";
        /** @description One page of jobs, in the order of their creation or its reverse. */
        JobList: {
            jobs: components["schemas"]["JobDetails"][];
            /** @description Ids of stored jobs in the range of this page that cannot be read; the scheduler does not run them. */
            unreadable?: string[];
            /** @description Cursor of the next page; absent on the last page. */
            nextCursor?: string | null;
        };
        /**
         * @description Payload of a job. Sent to the scheduler when the job is created and returned in the callback. Unknown fields, as a
         *     newer version may send them, are ignored.
         */
        JobPayload: {
            /** @description Kind of work. */
            kind: components["schemas"]["JobKind"];
            /** @description User on whose behalf the job runs. */
            userId: string;
            /** @description Company of the user. */
            companyId: string;
            /** @description Agent that runs the turn or calls the tool. */
            agentId: string;
            /** @description Tool name; required for the kind `tool`. */
            toolId?: string | null;
            /** @description Id of the tool assignment that this job implements. */
            assignmentId?: string | null;
            /** @description Arguments of the tool. */
            arguments?: {
                [key: string]: unknown;
            } | null;
            /** @description User message of the turn; required for the kind `agent`. */
            message?: string | null;
            /** @description Todo list that the tools work on; by default the agent's first. */
            todoListId?: string | null;
            /** @description Thread of the user that stores the turns, for the kind `agent`; by default, the job has a separate thread. */
            threadId?: string | null;
            /** @description IANA time zone of the user. */
            timezone?: string | null;
            /**
             * @description `traceparent` (W3C Trace Context) of the run that has created the job; deliveries continue its trace. An invalid one
             *     counts as absent.
             */
            traceparent?: string | null;
        };
        /** @description State of a job as reported by the API and stored in indices. */
        JobState: "scheduled" | "running" | "retryable" | "paused" | "completed" | "discarded" | "cancelled";
        /** @description State of a job after a [`JobControl`]. */
        JobStatus: {
            /** @description Job id. */
            jobId: string;
            /** @description State of the job. */
            state: components["schemas"]["JobState"];
            /** @description Due time of the next delivery, or of the last one for a job in a final state: RFC 3339 in UTC. */
            executeAt: string;
            /**
             * @description True if a delivery is in progress that could not be stopped.
             * @default false
             */
            delivering: boolean;
        };
        /** @description The state of a job after an operation on it. */
        JobStatus2: {
            jobId: string;
            state: components["schemas"]["JobState"];
            /**
             * @description Due time of the next delivery, or of the last one for a job in a final state: RFC 3339 in UTC with
             *     milliseconds.
             */
            executeAt: string;
            /** @description True if a delivery that the operation could not stop is in flight. */
            delivering: boolean;
        };
        /** @description A job and its current occurrence. */
        JobView: {
            /** @description Job id. */
            jobId: string;
            /** @description State of the job. */
            state: components["schemas"]["JobState"];
            /** @description Work to do, and the user for whom it is done. */
            payload: components["schemas"]["JobPayload"];
            /** @description Times at which the job runs. */
            schedule: components["schemas"]["Schedule"];
            /** @description Due time of the next attempt, or of the last one if the job is final: RFC 3339 in UTC with milliseconds. */
            executeAt: string;
            /**
             * Format: uint64
             * @description Number, from 1, of the occurrence that is waiting or running, or of the last one.
             */
            occurrence: number;
            /**
             * Format: uint32
             * @description Number of started attempts at this occurrence.
             */
            attempt: number;
            /** @description Error of the last attempt; absent if it succeeded. */
            lastError?: string | null;
            /** @description Creation time: RFC 3339 in UTC with milliseconds. */
            createdAt: string;
            /** @description The latest finished attempts, oldest first. */
            attempts?: components["schemas"]["AttemptView"][];
        };
        /** @description Page of jobs, in the order of the list. */
        JobViewPage: {
            /** @description Jobs of this page. */
            jobs: components["schemas"]["JobView"][];
            /** @description Cursor of the next page; absent on the last page. */
            nextCursor?: string | null;
        };
        /** @description Usage within a window of time. */
        LimitWindow: {
            /**
             * Format: double
             * @description Used share of the window in percent.
             */
            usedPercent: number;
            /**
             * Format: uint64
             * @description Length of the window.
             */
            windowMinutes?: number | null;
            /** @description End of the window: RFC 3339 in UTC. */
            resetsAt?: string | null;
        };
        /** @description Body of `POST /api/console/links`. */
        LinkInput: {
            /** @description The user whom the link signs in. */
            userId: string;
            /** @description The user's company. */
            companyId: string;
            /**
             * Format: uint64
             * @description Lifetime of the link in milliseconds, at most an hour; 10 minutes by default.
             */
            ttlMs?: number | null;
            /**
             * Format: uint64
             * @description Time without a request after which the session ends, in milliseconds, at most 7 days; 12 hours by default.
             */
            sessionMs?: number | null;
        };
        /** @description A link that signs in once. */
        LinkView: {
            /** @description Address with the code in its fragment. */
            url: string;
            /** @description Expiry, RFC 3339 in UTC. */
            expiresAt: string;
        };
        /** @description Permissions of an MCP token. */
        McpGrant: {
            /** @description The user on whose behalf the tools work. */
            userId: string;
            /** @description Identifier of the task list for tasks and plans. */
            todoListId?: string | null;
            /** @description Restricts the agent's tools to these names; all of them, if absent. */
            tools?: string[] | null;
            /** @description The user's IANA time zone. */
            timezone?: string | null;
            /** @description Identifier of the run that the token was issued for. */
            runId?: string | null;
            /** @description Identifier of the API token with which that run was requested. */
            tokenId?: string | null;
            /** @description True if calls of the run may wait for a person's approval. */
            canSuspend?: boolean;
        };
        /** @description Memory entry of an agent. */
        Memory: {
            /** @description Identifier, unique in its folder. */
            id: string;
            /** @description Company of the agent. */
            companyId: string;
            /** @description Agent that keeps the entry. */
            agentId: string;
            /** @description User that the entry belongs to. Absent in an entry that the company shares. */
            userId?: string | null;
            /** @description Folder; absent or blank is `default`. */
            folder?: string | null;
            /** @description Text of the entry. */
            text: string;
        };
        /** @description One page of memory entries. */
        MemoryPage: {
            /** @description The entries in the order of their ids. The ids of entries that the agent has made sort by age. */
            memories: components["schemas"]["Memory"][];
            /** @description Cursor of the next page; absent on the last page. */
            nextCursor?: string | null;
        };
        /** @description Owner of the entries of an agent's memory. */
        MemoryScope: "user" | "company";
        /**
         * @description Policy of a periodic job for missed occurrences: those that passed while the scheduler was down, the job was
         *     paused or all workers were busy. A one-off job always runs, however late.
         */
        MisfirePolicy: "runOnce" | "skip" | "runAll";
        /** @description The agents of a token. */
        ModelList: {
            /** @description Always `list`. */
            object: string;
            /** @description The agents, in the order of the token. */
            data: components["schemas"]["ModelObject"][];
        };
        /** @description An agent, as a model of the API. */
        ModelObject: {
            /** @description The agent's id. */
            id: string;
            /** @description Always `model`. */
            object: string;
            /**
             * Format: uint64
             * @description Time of the agent's last change, in seconds since 1970-01-01.
             */
            created: number;
            /** @description The agent's company. */
            owned_by: string;
        };
        NextOccurrences: {
            /** @description The occurrences in order; fewer than `count` if the schedule ends. */
            next: components["schemas"]["OccurrenceTime"][];
        };
        NextRequest: {
            /** @description The schedule, as a job would have it if it were created now. */
            schedule: components["schemas"]["ScheduleSpec"];
            /**
             * Format: uint
             * @description Number of occurrences; 10 if absent.
             */
            count?: number | null;
            /** @description RFC 3339; only occurrences after this time. Now if absent, and the time of a one-off schedule even if it has passed. */
            after?: string | null;
        };
        /** @description RFC 3339 in UTC with milliseconds. */
        OccurrenceTime: string;
        /** @description Treatment of a request in a thread whose run has not ended. */
        OnBusy: "reject" | "interrupt" | "queue";
        /** @description Effect of a client's disconnect on a run. */
        OnDisconnect: "cancel" | "continue";
        /**
         * @description Policy of a periodic job for occurrences that become due while another one is running or being retried. A job
         *     never runs concurrently with itself.
         */
        OverlapPolicy: "skip" | "queue";
        /** @description A request to schedule a job for the caller, without its schedule. */
        OwnJobRequest: {
            /** @description The work to do. `userId` and `companyId` are the caller's own and can be omitted. */
            payload: {
                [key: string]: unknown;
            };
            /** @description Idempotency key: requests of the caller with the same key and body create one job. */
            idempotencyKey?: string | null;
            /**
             * Format: uint32
             * @description Maximum number of attempts per occurrence, from 1 to 100; 12 by default.
             */
            maxAttempts?: number | null;
            /** @description Policy for occurrences that were missed because no scheduler was running. */
            misfire?: components["schemas"]["MisfirePolicy"] | null;
            /** @description Policy for occurrences that come due while another one is being delivered. */
            overlap?: components["schemas"]["OverlapPolicy"] | null;
        };
        /** @description A tool or a group of tools that a role defines, with its credential. */
        OwnTool: {
            /** @description Credential that is sent to the tool's address. */
            auth?: components["schemas"]["ToolAuth"] | null;
        } & {
            [key: string]: unknown;
        };
        PinRequest: {
            /** @description Id of the tool server in the role. */
            serverId: string;
            /**
             * @description Fingerprints of the definitions to pin, by the tools' names at the server. Other tools of the server are not
             *     pinned any more.
             */
            fingerprints: {
                [key: string]: string;
            };
        };
        /** @description Problem details, RFC 9457. */
        Problem: {
            /** @description `about:blank`, or the type `quota-exceeded` of IANA for a limit of the service. */
            type: string;
            /** @description The reason phrase of the HTTP status. */
            title: string;
            /** @description The HTTP status code. */
            status: number;
            /** @description Human-readable explanation of the error. */
            detail: string;
            /**
             * @description Machine-readable error code. Codes may be added.
             * @example INVALID_REQUEST
             * @example AMBIGUOUS_CREDENTIALS
             * @example OAUTH_ERROR
             * @example UNSUPPORTED_PARAMETER
             * @example UNKNOWN_PROVIDER
             * @example UNAUTHENTICATED
             * @example BUDGET_EXCEEDED
             * @example FORBIDDEN
             * @example SIGN_IN_REQUIRED
             * @example SUBSCRIPTION_REFUSED
             * @example OUTBOUND_BLOCKED
             * @example NOT_FOUND
             * @example METHOD_NOT_ALLOWED
             * @example NOT_ACCEPTABLE
             * @example REQUEST_TIMEOUT
             * @example CONFLICT
             * @example THREAD_BUSY
             * @example INTERRUPTS_OPEN
             * @example THREAD_FULL
             * @example GONE
             * @example INTERRUPT_EXPIRED
             * @example RUN_LOG_GONE
             * @example PRECONDITION_FAILED
             * @example PAYLOAD_TOO_LARGE
             * @example UNSUPPORTED_MEDIA_TYPE
             * @example MISDIRECTED_REQUEST
             * @example NO_CONNECTOR
             * @example EXTRACTION_FAILED
             * @example OUTCOME_UNKNOWN
             * @example UNSUPPORTED_CONTENT
             * @example PRICE_UNKNOWN
             * @example RATE_LIMITED
             * @example QUEUE_FULL
             * @example INTERNAL
             * @example PROVIDER_NOT_IMPLEMENTED
             * @example BACKEND_UNREACHABLE
             * @example BACKEND_FAILED
             * @example ACCOUNT_REFUSED
             * @example TOOL_LOOP_LIMIT
             * @example OUTPUT_TOO_LARGE
             * @example OUTPUT_INVALID
             * @example CONTEXT_LENGTH_EXCEEDED
             * @example STREAM_TRUNCATED
             * @example NOT_CONFIGURED
             * @example PULSE_NOT_CONFIGURED
             * @example STORE_UNAVAILABLE
             * @example SERVER_SHUTTING_DOWN
             * @example BACKEND_TIMEOUT
             */
            code: string;
            /** @description The request's id, as in the header `X-Request-Id`. */
            requestId: string;
            /** @description Names of the limits of the service that are reached, as in the header `RateLimit-Policy`. */
            "violated-policies"?: string[];
        };
        /** @description A text block of the prompt, with or without a title. */
        PromptBlock: string | {
            /**
             * @description The title.
             * @default
             */
            title: string;
            /** @description The text. */
            text: string;
        };
        /** @description Status of the connection to the scheduler. */
        PulseStatus: {
            /** @description True if a scheduler is configured. */
            configured: boolean;
            /** @description Names of the missing settings. */
            missing: string[];
            /** @description True if the scheduler responds and reports that it is healthy. */
            healthy: boolean;
            /**
             * Format: uint64
             * @description Number of the caller's jobs that are not in a final state.
             */
            jobCount: number;
            /** @description Expected value of the scheduler's `CALLBACK_URL`, unless a proxy is in between. */
            callbackUrl?: string | null;
        };
        /** @description Placement of retrieved fragments in the prompt. */
        RagPlacement: "systemPrompt" | "latestTurn";
        /** @description Format of an answer. */
        ResponseFormat: {
            /** @description Text or JSON. */
            type: components["schemas"]["ResponseKind"];
            /** @description Name of the schema, for providers that ask for one. */
            name?: string | null;
            /** @description JSON Schema of the answer; absent for any JSON object. */
            schema?: unknown;
            /** @description False to let a provider take the schema as a hint. The answer is validated in any case. */
            strict?: boolean | null;
            /**
             * Format: uint8
             * @description Number of further model calls that may correct an invalid answer; 1 by default.
             */
            repairs?: number | null;
        };
        /** @description Kind of an answer. */
        ResponseKind: "text" | "json";
        RetrieveRequest: {
            /** @description The message to retrieve fragments for. */
            query: string;
            /** @description The conversation before the message, oldest message first. */
            messages?: components["schemas"]["EarlierMessage"][];
            /**
             * Format: uint
             * @description Number of hits to rank; 20 if absent.
             */
            limit?: number | null;
        };
        /** @description Limits on the calls of one model in a round, or of an agent server in a run. Missing limits are those of the platform's settings. */
        RetrySettings: {
            /**
             * Format: uint32
             * @description Number of calls.
             */
            maxAttempts?: number | null;
            /**
             * Format: uint32
             * @description Limit on the waits between calls, together, in milliseconds.
             */
            maxWaitMs?: number | null;
            /**
             * Format: uint32
             * @description Time in milliseconds in which an answer's first content must arrive.
             */
            firstContentMs?: number | null;
            /** @description Further failures after which a fallback is called: `content`, a refusal by the provider's filter. */
            also?: string[];
        };
        /** @description An agent's role: its content and its containers. */
        RoleBlock: {
            /** @description The agent's identifier. */
            id: string;
            /**
             * @description The agent's name.
             * @default
             */
            name: string;
            /**
             * @description The user who owns the agent.
             * @default
             */
            ownerId: string;
            /** @description The company that the agent belongs to. */
            companyId: string;
            /**
             * @description The agent's prompt, tools and backend.
             * @default {}
             */
            content: components["schemas"]["RoleContent"];
            /** @description Modules below the role, which name backends. */
            children?: components["schemas"]["Container"][];
        };
        /** @description An agent's prompt, tools and backend. */
        RoleContent: {
            /** @description The operator's system prompt. */
            systemPrompt?: string | null;
            /** @description Free-form settings that the prompt shows to the model. */
            agentConfig?: unknown;
            /** @description The agent's manner of speaking. */
            personality?: string | null;
            /** @description Text blocks of the prompt, with or without a title. */
            promptBlocks?: components["schemas"]["PromptBlock"][];
            /** @description Rules that the agent must follow. */
            rules?: string[];
            /** @description Identifiers of the documents whose text is part of the prompt. */
            documentIds?: string[];
            /** @description The folder of the agent's memory. */
            memoryFolder?: string | null;
            /** @description Owner of the entries of the agent's memory; absent means `user`. */
            memoryScope?: components["schemas"]["MemoryScope"] | null;
            /** @description The other agents that this agent may consult. */
            council?: components["schemas"]["Council"] | null;
            /**
             * @description Names of the tools that the agent starts with; absent means the base set. In place of names, a workspace file
             *     may have `base` for the base set or `none` for no tools.
             */
            mcpPreset?: string[] | ("base" | "none") | null;
            /** @description Names of further tools in addition to the preset. */
            tools?: string[];
            /** @description Names of the tools that a widget's visitors may use; none by default. */
            widgetTools?: string[];
            /** @description Tools that call an HTTP API. */
            httpTools?: components["schemas"]["OwnTool"][];
            /** @description OpenAPI documents, whose operations are tools. */
            openApi?: components["schemas"]["OwnTool"][];
            /** @description MCP servers with tools. */
            toolServers?: components["schemas"]["OwnTool"][];
            /** @description Rules by which tool calls wait for a person's approval. */
            approvals?: components["schemas"]["ApprovalRule"][];
            /** @description Enables the retrieval of fragments of the agent's documents for each turn. */
            enableAutoRag?: boolean;
            /** @description Identifiers of the documents to retrieve from; if empty, those in the prompt (`documentIds`). */
            ragDocumentIds?: string[];
            /** @description Placement of retrieved fragments in the prompt. */
            ragPlacement?: components["schemas"]["RagPlacement"] | null;
            /** @description Shows a widget's visitors the titles and pages of the documents that an answer cites. */
            showSources?: boolean;
            /** @description Shortening of long conversations, by names of settings. No secrets. */
            compaction?: {
                [key: string]: unknown;
            } | null;
            /**
             * Format: uint32
             * @description The model's context window: tokens of prompt and answer together.
             */
            contextWindow?: number | null;
            /**
             * Format: uint32
             * @description Limit on an answer of the model, in tokens.
             */
            maxOutputTokens?: number | null;
            /** @description The messenger bot's token. */
            messengerToken?: components["schemas"]["Secret"] | null;
            /** @description Base URL of the runtime. */
            agentServerUrl?: string | null;
            /** @description Name of the provider that the runtime uses. */
            agentServerProvider?: string | null;
            /** @description Name of the model at the provider. */
            agentServerModel?: string | null;
            /** @description Enables the model's reasoning output. */
            agentServerEnableThinking?: boolean | null;
            /** @description Restricts the allowed tools to these names. */
            agentServerTools?: string[] | null;
            /** @description URL of a local model runtime, sent as `baseUrl`. */
            agentServerLocalUrl?: string | null;
            /** @description API key of a hosted provider, sent as `apiKey`. */
            agentServerApiKey?: components["schemas"]["Secret"] | null;
            /** @description Parameters of the model's calls by their names, such as `temperature`. No secrets. */
            parameters?: {
                [key: string]: unknown;
            };
            /** @description Prices in dollars for a million tokens: `input`, `cachedInput`, `cacheWrite` and `output`. No secrets. */
            prices?: {
                [key: string]: unknown;
            };
            /** @description Limits on the calls of the runtime. */
            retry?: components["schemas"]["RetrySettings"] | null;
            /** @description Agent servers for the runs that this one fails to begin. They inherit neither address nor key, and have no fallbacks of their own. */
            fallbacks?: components["schemas"]["AgentServer"][];
            /**
             * Format: uint32
             * @description Time in milliseconds in which a fallback's first content must arrive.
             */
            firstContentMs?: number | null;
            /** @description Storage of the agent's conversations. */
            conversations?: components["schemas"]["ConversationSettings"] | null;
        };
        /** @description A field of a role with a fault or without an effect. */
        RoleFinding: {
            /** @description Path of the field in the role, such as `content.tools[1]`. */
            path: string;
            /** @description Description, worded to follow the path. */
            message: string;
        };
        /** @description Rate caps of a widget or API token, shared by all its bearers. */
        RunCaps: {
            /**
             * Format: uint32
             * @description Runs per minute; also the maximum burst.
             */
            runsPerMinute: number;
            /**
             * Format: uint32
             * @description Runs per day, which begins at midnight UTC; unlimited if absent.
             */
            runsPerDay?: number | null;
        };
        /** @description Times at which a job runs. */
        Schedule: {
            /** @description Time of the only occurrence: RFC 3339 in UTC with milliseconds. */
            executeAt: string;
        } | {
            /**
             * Format: uint64
             * @description Interval in milliseconds.
             */
            everyMs: number;
            /** @description Start of the first interval: RFC 3339 in UTC with milliseconds. */
            anchor: string;
        } | {
            /** @description The expression, as it was given. */
            cron: string;
            /** @description IANA name of the time zone. */
            timezone: string;
            /** @description Policy for the changes to and from daylight saving time; absent if it is the default. */
            dst?: components["schemas"]["DstPolicy"];
        };
        /** @description Schedule of a request: exactly one of `executeAt`, `delayMs`, `cron` and `everyMs`. */
        ScheduleSpec: {
            /**
             * @description Runs once at an RFC 3339 time; without an offset, it is local to `timezone`. A time in the past is due at
             *     once.
             */
            executeAt?: string | null;
            /**
             * Format: uint64
             * @description Runs once after this many milliseconds, at most ten years.
             */
            delayMs?: number | null;
            /**
             * @description Runs repeatedly by a cron expression of five fields (minute, hour, day of month, month, day of week), of six
             *     with the second first, or a nickname such as `@daily`.
             */
            cron?: string | null;
            /**
             * Format: uint64
             * @description Runs repeatedly at this interval in milliseconds, first one interval from now: from a second to ten years.
             */
            everyMs?: number | null;
            /** @description IANA name of the time zone for `cron` and for an `executeAt` without an offset; UTC by default. */
            timezone?: string | null;
            /** @description Daylight-saving policy for `cron`; ignored otherwise. */
            dst?: components["schemas"]["DstPolicy"] | null;
        };
        /** @description Created or moved job. */
        ScheduledJob: {
            /** @description Job id. */
            jobId: string;
            /** @description Next due time, RFC 3339 in UTC. */
            executeAt: string;
        };
        /** @description A stored job. */
        ScheduledJob2: {
            jobId: string;
            /** @description Due time of the first occurrence: RFC 3339 in UTC with milliseconds. */
            executeAt: string;
        };
        /** @description A secret, shown as `***`. When a role is saved, an absent secret or `***` keeps the stored secret, and an empty text clears it. */
        Secret: string;
        /** @description The signed-in user, and the features of the page. */
        SessionView: {
            userId: string;
            companyId: string;
            /** @description The user's roles in the company. */
            roles: components["schemas"]["CompanyRole"][];
            /** @description End of the console's session, unless a request extends it; RFC 3339 in UTC. Absent for other sessions. */
            expiresAt?: string | null;
            /** @description Version of the application. */
            version: string;
            /** @description Features that this application has. */
            features: string[];
        };
        /** @description Body of `POST /api/console/session`. */
        SignInInput: {
            /** @description The code of a link. */
            code: string;
        };
        /** @description Status of a sign-in. */
        SignInStatus: "pending" | "complete" | "denied" | "expired" | "failed";
        /** @description Status of a sign-in. */
        SignInStatusView: {
            /** @description The status. */
            status: components["schemas"]["SignInStatus"];
            /** @description Reason of `failed`. */
            code?: string | null;
            /**
             * Format: uint64
             * @description Remaining lifetime of `pending` in seconds.
             */
            expiresIn?: number | null;
        };
        /** @description A subscription coding model. */
        SubscriptionConnector: {
            /** @description The model's name. */
            model?: string | null;
            /** @description Text sent as the request's instructions, for a vendor that accepts only its own; the system prompt follows it. */
            instructions?: string | null;
            /** @description Enables or disables the model's reasoning; absent leaves the model's default. */
            enableThinking?: boolean | null;
            /** @description Level of the model's reasoning in the provider's terms, such as `low`. It overrides `enableThinking`. */
            reasoningEffort?: string | null;
        };
        /** @description Limits of a user's subscription. */
        SubscriptionLimits: {
            /** @description The shorter window, such as five hours. */
            primary?: components["schemas"]["LimitWindow"] | null;
            /** @description The longer window, such as a week. */
            secondary?: components["schemas"]["LimitWindow"] | null;
            /** @description Credits beyond the windows. */
            credits?: components["schemas"]["Credits"] | null;
        };
        /** @description State of a user's subscription. */
        SubscriptionState: "ok" | "signInRequired";
        /** @description The caller's subscription. */
        SubscriptionView: {
            /** @description True if the caller is signed in. */
            signedIn: boolean;
            /** @description State of the sign-in. */
            state: components["schemas"]["SubscriptionState"];
            /** @description Name of the plan. */
            plan?: string | null;
            /** @description The last characters of the account's identifier. */
            account?: string | null;
            /** @description Expiry of the access token, RFC 3339 in UTC. It is renewed before. */
            expiresAt?: string | null;
            /** @description Time of the latest renewal or sign-in, RFC 3339 in UTC. */
            refreshedAt?: string | null;
            /** @description The vendor's limits, as of its latest answer through this process. */
            limits?: components["schemas"]["SubscriptionLimits"] | null;
        };
        /** @description Synchronization state of an assignment with the scheduler. */
        SyncView: {
            /**
             * @description True if the scheduler has the current version of the assignment. If false, it is updated within minutes of
             *     becoming reachable.
             */
            inStep: boolean;
            /** @description The scheduler's job for the assignment. */
            jobId?: string | null;
            /** @description Due time of the job's next occurrence, as last reported by the scheduler. */
            executeAt?: string | null;
            /** @description Reason why the assignment does not run, although it is enabled. */
            problem?: string | null;
        };
        TestRequest: {
            /**
             * @description Arguments of the call.
             * @default {}
             */
            arguments: {
                [key: string]: unknown;
            };
        };
        /** @description Part of a document's text. */
        TextPart: {
            /**
             * Format: uint
             * @description Position of the part in the text, in bytes.
             */
            start: number;
            /**
             * Format: uint
             * @description Position after the part, in bytes.
             */
            end: number;
            /**
             * Format: uint
             * @description Size of the whole text, in bytes.
             */
            bytes: number;
            /**
             * Format: uint64
             * @description Version of the document.
             */
            version: number;
            /** @description The part. */
            text: string;
        };
        /** @description A token without its secret. */
        Token: {
            /** @description The public identifier, a UUID of version 7. */
            id: string;
            /** @description The company of the agent. */
            companyId: string;
            /** @description The agent that the token is valid for; of an API token, the first of its agents. */
            agentId: string;
            /**
             * Format: date-time
             * @description Creation time, to the millisecond. RFC 3339 in JSON, like the other times.
             */
            createdAt: string;
            /**
             * Format: date-time
             * @description Expiry time; the token never expires if absent.
             */
            expiresAt?: string;
            /**
             * Format: date-time
             * @description Revocation time, if the token was revoked.
             */
            revokedAt?: string;
            /** @description Label given by the creator. */
            label?: string | null;
        } & (components["schemas"]["WidgetGrant"] | components["schemas"]["McpGrant"] | components["schemas"]["ApiGrant"]);
        TokenKind: "widget" | "mcp" | "api";
        /** @description One page of an agent's tokens. */
        TokenPage: {
            /** @description The tokens, oldest first, without their texts; includes expired and revoked ones. */
            tokens: components["schemas"]["Token"][];
            /** @description Cursor of the next page; absent on the last page. */
            nextCursor?: string | null;
        };
        /** @description A request to create a token. */
        TokenRequest: {
            /** @description Purpose of the token. */
            kind: components["schemas"]["TokenKind"];
            /**
             * Format: uint64
             * @description Lifetime in milliseconds; unlimited if absent.
             */
            ttlMs?: number | null;
            /** @description Label chosen by the user. */
            label?: string | null;
            /** @description Widget: origins of the pages that may use the token; any origin if empty or absent. */
            origins?: string[] | null;
            /** @description Widget and API: rate limits. */
            caps?: components["schemas"]["RunCaps"] | null;
            /** @description MCP: the todo list that tasks and plans are written to. */
            todoListId?: string | null;
            /** @description MCP: restricts the agent's tools to these. */
            tools?: string[] | null;
            /** @description API: further agents, which the caller must also own. */
            agents?: string[] | null;
        };
        /** @description Credential of a tool. */
        ToolAuth: {
            /** @description The secret. */
            secret?: components["schemas"]["Secret"] | null;
        } & {
            [key: string]: unknown;
        };
        /** @description Hint of a tool's definition about the side effects of a call. */
        ToolHint: "destructive" | "openWorld";
        /** @description Treatment of a call that needs approval while no user can be asked. */
        UnattendedCalls: "deny" | "wait" | "allow";
        /** @description State of an upload. */
        UploadStatus: {
            /** @description Identifier of the document. */
            id: string;
            /**
             * Format: uint64
             * @description Version of the document.
             */
            version: number;
            /** @description State of the extraction. */
            status: components["schemas"]["ContentStatus"];
        };
        /** @description The stored earlier versions of a document. */
        VersionList: {
            /** @description The versions, newest first, without their texts. */
            versions: components["schemas"]["DocumentVersionSummary"][];
        };
        /** @description Authentication of the platform at a webhook. Secrets may be omitted when a role is saved, like all secrets. */
        WebhookAuth: {
            /** @constant */
            type: "none";
        } | {
            /** @constant */
            type: "basic";
            /** @description The user name. */
            user: string;
            /** @description The password. */
            password?: components["schemas"]["Secret"] | null;
        } | {
            /** @constant */
            type: "header";
            /** @description The header's name. */
            name: string;
            /** @description The header's value. */
            value?: components["schemas"]["Secret"] | null;
        } | {
            /** @constant */
            type: "jwt";
            /** @description The signing secret. */
            secret?: components["schemas"]["Secret"] | null;
        };
        /** @description Permissions of a widget token. */
        WidgetGrant: {
            /**
             * @description Exact origins of the pages that may use the token; any origin, if empty.
             * @default []
             */
            origins: string[];
            /**
             * @description Rate caps.
             * @default {
             *       "runsPerMinute": 20
             *     }
             */
            caps: components["schemas"]["RunCaps"];
        };
        /** @description A workflow engine's webhook. */
        WorkflowConnector: {
            /** @description URL to which the payload is posted. */
            webhookUrl?: string | null;
            /** @description Authentication at the webhook. */
            auth?: components["schemas"]["WebhookAuth"] | null;
        };
    };
    responses: {
        /** @description An error, as problem details. */
        Problem: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        /** @description An error, as OpenAI's API has it. */
        ApiError: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["ApiError"];
            };
        };
    };
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    getConsole: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The page. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/html": string;
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            404: components["responses"]["Problem"];
            421: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
        };
    };
    chat: {
        parameters: {
            query?: {
                /** @description The format of the response; by default it is negotiated by `Accept`. */
                format?: "ndjson" | "sse" | "ui-message" | "n8n" | "json";
            };
            header?: {
                /** @description Marks a proactive call and gives its reason. */
                "X-Proactive-Trigger"?: string;
                /** @description The key of a widget's visitor. A visitor with a key has threads. */
                "X-Visitor-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    agentId?: string;
                    /** @description Text, or a user message. */
                    message?: unknown;
                    /** @description The conversation, oldest first. */
                    messages?: Record<string, unknown>[];
                    threadId?: string;
                    runId?: string;
                    tabId?: string;
                    todoListId?: string;
                    timezone?: string;
                    widgetToken?: string;
                    userId?: string;
                    companyId?: string;
                    /** @description True stores the run, false does not; by default, a run with a `threadId` is stored. */
                    store?: boolean;
                    /** @enum {string} */
                    history?: "server" | "client";
                    /**
                     * @description Effect of a disconnect on a stored run.
                     * @enum {string}
                     */
                    onDisconnect?: "cancel" | "continue";
                    /** @description Time without a client after which the run is cancelled. */
                    graceMs?: number;
                    /**
                     * @description Behaviour if another run of the thread has not ended.
                     * @enum {string}
                     */
                    onBusy?: "reject" | "interrupt" | "queue";
                    /** @description Answers 202 at once; the run continues without a client. */
                    background?: boolean;
                    parentId?: string | null;
                    trigger?: string;
                    messageId?: string;
                    title?: string;
                    metadata?: Record<string, unknown>;
                    pageContext?: unknown;
                    blocksContext?: unknown[];
                    toolChoice?: unknown;
                    /** @description Format of the answer. */
                    responseFormat?: {
                        /** @enum {string} */
                        type: "text" | "json";
                        name?: string;
                        /** @description JSON Schema of the answer. */
                        schema?: Record<string, unknown>;
                        strict?: boolean;
                        repairs?: number;
                    };
                };
            };
        };
        responses: {
            /** @description A stream of AG-UI events, or one JSON object. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "text/plain": string;
                    "application/json": {
                        threadId: string;
                        runId: string;
                        output: string;
                        toolCalls?: unknown[];
                        usage?: unknown[];
                        finishReason?: string;
                        /** @description The answer, if a JSON format was requested. */
                        object?: unknown;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            406: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            422: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            501: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
            504: components["responses"]["Problem"];
        };
    };
    resumeThread: {
        parameters: {
            query?: {
                /** @description The format of the response; by default it is negotiated by `Accept`. */
                format?: "ndjson" | "sse" | "ui-message" | "n8n" | "json";
            };
            header?: never;
            path: {
                threadId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A stream of AG-UI events, or one JSON object. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "text/plain": string;
                    "application/json": {
                        threadId: string;
                        runId: string;
                        output: string;
                        toolCalls?: unknown[];
                        usage?: unknown[];
                        finishReason?: string;
                        /** @description The answer, if a JSON format was requested. */
                        object?: unknown;
                    };
                };
            };
            /** @description The thread has no live run. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            406: components["responses"]["Problem"];
            422: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            501: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
            504: components["responses"]["Problem"];
        };
    };
    mcpListen: {
        parameters: {
            query?: {
                /** @description The token, for clients that cannot send an `Authorization` header. */
                token?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A stream of JSON-RPC messages. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            /** @description A JSON-RPC error, or a problem. */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            406: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    mcpSend: {
        parameters: {
            query?: {
                /** @description The token, for clients that cannot send an `Authorization` header. */
                token?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": Record<string, unknown>;
            };
        };
        responses: {
            /** @description The JSON-RPC response. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                };
            };
            /** @description The notification or response was accepted. */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description A JSON-RPC error, or a problem. */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            /** @description A JSON-RPC error, or a problem. */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            406: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            408: components["responses"]["Problem"];
            /** @description A JSON-RPC error, or a problem. */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    mcpEnd: {
        parameters: {
            query?: {
                /** @description The token, for clients that cannot send an `Authorization` header. */
                token?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The session was ended. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description A JSON-RPC error, or a problem. */
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            /** @description A JSON-RPC error, or a problem. */
            404: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            405: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            406: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            409: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            413: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            415: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            /** @description A JSON-RPC error, or a problem. */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    toolAudit: {
        parameters: {
            query?: {
                /** @description The agent. */
                agentId?: string;
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of tool calls, newest first. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listAgents: {
        parameters: {
            query?: {
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of agents. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentPage"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getAgent: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The agent. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RoleBlock"];
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    putAgent: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description The agent's identifier. */
                    id?: string;
                    /**
                     * @description The agent's name.
                     * @default
                     */
                    name?: string;
                    /**
                     * @description The user who owns the agent.
                     * @default
                     */
                    ownerId?: string;
                    /** @description The company that the agent belongs to. */
                    companyId?: string;
                    /**
                     * @description The agent's prompt, tools and backend.
                     * @default {}
                     */
                    content?: components["schemas"]["RoleContent"];
                    /** @description Modules below the role, which name backends. */
                    children?: components["schemas"]["Container"][];
                };
            };
        };
        responses: {
            /** @description The agent was replaced. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentView"];
                };
            };
            /** @description The agent was created. */
            201: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AgentView"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            422: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    deleteAgent: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The agent was deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listAssignments: {
        parameters: {
            query?: {
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of assignments. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AssignmentPage"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getAssignment: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
                assignmentId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The assignment. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AssignmentView"];
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    putAssignment: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
                assignmentId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description Identifier, unique in the company. */
                    id?: string;
                    /** @description User for whom the tool runs. */
                    userId?: string;
                    /** @description Company of the user. */
                    companyId?: string;
                    /** @description Agent that calls the tool or runs the turn. */
                    agentId?: string;
                    /**
                     * @description Kind of work; a tool call by default.
                     * @default tool
                     */
                    kind?: components["schemas"]["JobKind"];
                    /** @description Name of the tool; required for the kind `tool`. */
                    toolId?: string | null;
                    /** @description User message of the turn; required for the kind `agent`. */
                    message?: string | null;
                    /** @description Arguments of the tool. */
                    arguments?: {
                        [key: string]: unknown;
                    } | null;
                    /** @description Todo list that the work is about. */
                    todoListId?: string | null;
                    /** @description Times at which the assignment runs. */
                    schedule: components["schemas"]["AssignmentSchedule"];
                };
            };
        };
        responses: {
            /** @description The assignment was replaced. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AssignmentView"];
                };
            };
            /** @description The assignment was created. */
            201: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AssignmentView"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    deleteAssignment: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
            };
            path: {
                id: string;
                assignmentId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The assignment was deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getCapabilities: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The capabilities for the caller. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        identity?: Record<string, unknown>;
                        transport?: {
                            streaming?: boolean;
                            websocket?: boolean;
                            httpBinary?: boolean;
                            pushNotifications?: boolean;
                            resumable?: boolean;
                        };
                        tools?: {
                            supported?: boolean;
                            clientProvided?: boolean;
                            items?: Record<string, unknown>[];
                        };
                        state?: {
                            snapshots?: boolean;
                            deltas?: boolean;
                            persistentState?: boolean;
                        };
                        humanInTheLoop?: {
                            supported?: boolean;
                            approvals?: boolean;
                            approveWithEdits?: boolean;
                            interrupts?: boolean;
                            interventions?: boolean;
                            feedback?: boolean;
                        };
                        custom?: Record<string, unknown>;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listFeedback: {
        parameters: {
            query?: {
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of feedback. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        feedback: {
                            /** @enum {string} */
                            rating: "up" | "down";
                            /** @description At most 2048 bytes. */
                            comment?: string;
                            /**
                             * @description True if the agent's owner may read the rated words.
                             * @default false
                             */
                            share: boolean;
                            tags?: string[];
                            id: string;
                            createdAt: string;
                            /** @description The rated words, if they are shared. */
                            message?: {
                                role: string;
                                content: string;
                            };
                        }[];
                        nextCursor?: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listMemories: {
        parameters: {
            query?: {
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of entries. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MemoryPage"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    deleteMemories: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The content was deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getMemory: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
                memoryId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The entry. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Memory"];
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    putMemory: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
                memoryId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description Identifier, unique in its folder. */
                    id?: string;
                    /** @description Company of the agent. */
                    companyId?: string;
                    /** @description Agent that keeps the entry. */
                    agentId?: string;
                    /** @description User that the entry belongs to. Absent in an entry that the company shares. */
                    userId?: string | null;
                    /** @description Folder; absent or blank is `default`. */
                    folder?: string | null;
                    /** @description Text of the entry. */
                    text: string;
                };
            };
        };
        responses: {
            /** @description The entry was replaced. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Memory"];
                };
            };
            /** @description The entry was created. */
            201: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Memory"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    deleteMemory: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
            };
            path: {
                id: string;
                memoryId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The content was deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    putAgentOwner: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description User to whom the item is handed over. */
                    ownerId: string;
                };
            };
        };
        responses: {
            /** @description The agent. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RoleBlock"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    previewRole: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    agentId?: string;
                    /** @description Text, or a user message. */
                    message?: unknown;
                    /** @description The conversation, oldest first. */
                    messages?: Record<string, unknown>[];
                    threadId?: string;
                    runId?: string;
                    tabId?: string;
                    todoListId?: string;
                    timezone?: string;
                    widgetToken?: string;
                    userId?: string;
                    companyId?: string;
                    /** @description True stores the run, false does not; by default, a run with a `threadId` is stored. */
                    store?: boolean;
                    /** @enum {string} */
                    history?: "server" | "client";
                    /**
                     * @description Effect of a disconnect on a stored run.
                     * @enum {string}
                     */
                    onDisconnect?: "cancel" | "continue";
                    /** @description Time without a client after which the run is cancelled. */
                    graceMs?: number;
                    /**
                     * @description Behaviour if another run of the thread has not ended.
                     * @enum {string}
                     */
                    onBusy?: "reject" | "interrupt" | "queue";
                    /** @description Answers 202 at once; the run continues without a client. */
                    background?: boolean;
                    parentId?: string | null;
                    trigger?: string;
                    messageId?: string;
                    title?: string;
                    metadata?: Record<string, unknown>;
                    pageContext?: unknown;
                    blocksContext?: unknown[];
                    toolChoice?: unknown;
                    /** @description Format of the answer. */
                    responseFormat?: {
                        /** @enum {string} */
                        type: "text" | "json";
                        name?: string;
                        /** @description JSON Schema of the answer. */
                        schema?: Record<string, unknown>;
                        strict?: boolean;
                        repairs?: number;
                    };
                } & {
                    /** @description An agent's role: its content and its containers. */
                    role: {
                        /** @description The agent's identifier. */
                        id?: string;
                        /**
                         * @description The agent's name.
                         * @default
                         */
                        name?: string;
                        /**
                         * @description The user who owns the agent.
                         * @default
                         */
                        ownerId?: string;
                        /** @description The company that the agent belongs to. */
                        companyId?: string;
                        /**
                         * @description The agent's prompt, tools and backend.
                         * @default {}
                         */
                        content?: components["schemas"]["RoleContent"];
                        /** @description Modules below the role, which name backends. */
                        children?: components["schemas"]["Container"][];
                    };
                };
            };
        };
        responses: {
            /** @description The prompt, its parts, and the request to the backend; `warnings` lists settings without effect. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            422: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    retrieve: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RetrieveRequest"];
            };
        };
        responses: {
            /** @description The documents, the terms, and each hit with its scores. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listSharedMemories: {
        parameters: {
            query?: {
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of entries. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["MemoryPage"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    deleteSharedMemories: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The content was deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getSharedMemory: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
                memoryId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The entry. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Memory"];
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    putSharedMemory: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
                memoryId: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description Identifier, unique in its folder. */
                    id?: string;
                    /** @description Company of the agent. */
                    companyId?: string;
                    /** @description Agent that keeps the entry. */
                    agentId?: string;
                    /** @description User that the entry belongs to. Absent in an entry that the company shares. */
                    userId?: string | null;
                    /** @description Folder; absent or blank is `default`. */
                    folder?: string | null;
                    /** @description Text of the entry. */
                    text: string;
                };
            };
        };
        responses: {
            /** @description The entry was replaced. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Memory"];
                };
            };
            /** @description The entry was created. */
            201: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Memory"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    deleteSharedMemory: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
            };
            path: {
                id: string;
                memoryId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The content was deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listAgentThreads: {
        parameters: {
            query?: {
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of threads. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        threads: {
                            id: string;
                            agentId: string;
                            title: string;
                            /** @enum {string} */
                            titleFrom: "message" | "user" | "model";
                            /** @enum {string} */
                            status: "idle" | "running" | "waiting" | "awaitingTools";
                            activeRunId?: string;
                            /** @description The leaf of the path that is shown and continued. */
                            head?: string;
                            archived: boolean;
                            /** @enum {string} */
                            origin: "chat" | "job" | "proactive" | "client";
                            /** @description The messages of all branches; absent for visitors. */
                            messageCount?: number;
                            metadata: Record<string, unknown>;
                            createdAt?: string;
                            lastActivityAt?: string;
                            expiresAt?: string;
                            version?: number;
                            /** @description The visitor, for the parameter `owner` of other operations. */
                            owner?: string;
                        }[];
                        nextCursor?: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listTokens: {
        parameters: {
            query?: {
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of tokens. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TokenPage"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    createToken: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TokenRequest"];
            };
        };
        responses: {
            /** @description The token with its text, which is returned only once. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CreatedToken"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    revokeToken: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
                tokenId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The token was revoked. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listAgentTools: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The tools by name. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        tools: {
                            name: string;
                            /** @enum {string} */
                            source: "builtIn" | "http" | "openApi" | "toolServer";
                            serverId?: string;
                            /** @enum {string} */
                            approval: "auto" | "ask";
                            /** @description True if the company's approval floor demands the approval. */
                            approvalFloor?: boolean;
                            /** @description SHA-256 of the definition in use. */
                            fingerprint?: string;
                            /** @enum {string} */
                            status: "ok" | "new" | "changed" | "gone" | "unreachable";
                        }[];
                        /** @description Operations of OpenAPI documents that cannot be tools. */
                        skipped: {
                            openApiId: string;
                            operation: string;
                            reason: string;
                        }[];
                        /** @description Operations of OpenAPI documents that are tools without an optional body, or without parts of a form. */
                        incomplete: {
                            openApiId: string;
                            operation: string;
                            reason: string;
                        }[];
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    discoverAgentTools: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["DiscoverRequest"];
            };
        };
        responses: {
            /** @description The comparison; `unreachable` if the server has not answered. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        serverId: string;
                        /** @enum {string} */
                        status: "ok" | "new" | "changed" | "gone" | "unreachable";
                        error?: string;
                        tools: {
                            name: string;
                            offeredAs: string;
                            isAllowed: boolean;
                            /** @enum {string} */
                            status: "ok" | "new" | "changed" | "gone" | "unreachable";
                            fingerprint?: string;
                            definition?: {
                                [key: string]: unknown;
                            };
                            pinned?: {
                                [key: string]: unknown;
                            };
                            fault?: string;
                        }[];
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    pinAgentTools: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PinRequest"];
            };
        };
        responses: {
            /** @description The agent's tools. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        tools: {
                            name: string;
                            /** @enum {string} */
                            source: "builtIn" | "http" | "openApi" | "toolServer";
                            serverId?: string;
                            /** @enum {string} */
                            approval: "auto" | "ask";
                            /** @description True if the company's approval floor demands the approval. */
                            approvalFloor?: boolean;
                            /** @description SHA-256 of the definition in use. */
                            fingerprint?: string;
                            /** @enum {string} */
                            status: "ok" | "new" | "changed" | "gone" | "unreachable";
                        }[];
                        /** @description Operations of OpenAPI documents that cannot be tools. */
                        skipped: {
                            openApiId: string;
                            operation: string;
                            reason: string;
                        }[];
                        /** @description Operations of OpenAPI documents that are tools without an optional body, or without parts of a form. */
                        incomplete: {
                            openApiId: string;
                            operation: string;
                            reason: string;
                        }[];
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    testAgentTool: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TestRequest"];
            };
        };
        responses: {
            /** @description The result, as a model would read it. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        text: string;
                        structured?: {
                            [key: string]: unknown;
                        };
                        isError: boolean;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listApprovals: {
        parameters: {
            query?: {
                /** @description Only those in this state. */
                state?: "open" | "approved" | "denied" | "cancelled" | "expired";
                /** @description Only those of this agent. */
                agentId?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The approvals. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        approvals: {
                            id: string;
                            threadId: string;
                            runId: string;
                            agentId: string;
                            toolCallId: string;
                            tool: string;
                            arguments?: Record<string, unknown> | null;
                            /** @enum {unknown} */
                            state: "open" | "approved" | "denied" | "cancelled" | "expired";
                            /** @enum {unknown} */
                            by: "user" | "visitor" | "owner" | "company";
                            editable?: boolean;
                            message?: string;
                            decidedBy?: string;
                            /** Format: date-time */
                            decidedAt?: string;
                            /** @enum {unknown} */
                            via?: "chat" | "approvals";
                            editedArguments?: Record<string, unknown>;
                            reason?: string;
                            /** Format: date-time */
                            expiresAt: string;
                            /** @enum {unknown} */
                            executed: "no" | "begun" | "done";
                            /** Format: date-time */
                            createdAt?: string;
                        }[];
                        nextCursor?: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getApproval: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The approval. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        id: string;
                        threadId: string;
                        runId: string;
                        agentId: string;
                        toolCallId: string;
                        tool: string;
                        arguments?: Record<string, unknown> | null;
                        /** @enum {unknown} */
                        state: "open" | "approved" | "denied" | "cancelled" | "expired";
                        /** @enum {unknown} */
                        by: "user" | "visitor" | "owner" | "company";
                        editable?: boolean;
                        message?: string;
                        decidedBy?: string;
                        /** Format: date-time */
                        decidedAt?: string;
                        /** @enum {unknown} */
                        via?: "chat" | "approvals";
                        editedArguments?: Record<string, unknown>;
                        reason?: string;
                        /** Format: date-time */
                        expiresAt: string;
                        /** @enum {unknown} */
                        executed: "no" | "begun" | "done";
                        /** Format: date-time */
                        createdAt?: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    decideApproval: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @enum {unknown} */
                    decision: "approve" | "deny" | "cancel";
                    /** @description Arguments in place of the model's, for an approved call. */
                    arguments?: Record<string, unknown>;
                    /** @description Reason of a denial, for the model. */
                    reason?: string;
                };
            };
        };
        responses: {
            /** @description The approval. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        id: string;
                        threadId: string;
                        runId: string;
                        agentId: string;
                        toolCallId: string;
                        tool: string;
                        arguments?: Record<string, unknown> | null;
                        /** @enum {unknown} */
                        state: "open" | "approved" | "denied" | "cancelled" | "expired";
                        /** @enum {unknown} */
                        by: "user" | "visitor" | "owner" | "company";
                        editable?: boolean;
                        message?: string;
                        decidedBy?: string;
                        /** Format: date-time */
                        decidedAt?: string;
                        /** @enum {unknown} */
                        via?: "chat" | "approvals";
                        editedArguments?: Record<string, unknown>;
                        reason?: string;
                        /** Format: date-time */
                        expiresAt: string;
                        /** @enum {unknown} */
                        executed: "no" | "begun" | "done";
                        /** Format: date-time */
                        createdAt?: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            410: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    contextStatus: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The replacement. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    contextAction: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                action: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The replacement. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    contextActionOf: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                action: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The replacement. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listBudgets: {
        parameters: {
            query?: {
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of budgets. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        budgets: {
                            /** @enum {unknown} */
                            kind: "company" | "agent" | "user" | "token" | "run";
                            id: string;
                            limits: {
                                /** @enum {unknown} */
                                unit: "cost" | "tokens" | "runs" | "concurrentRuns" | "toolCalls" | "wallMs";
                                /** @description A whole number; for the cost a string with a decimal number of dollars. */
                                amount: number | string;
                                /**
                                 * @description Period; days and months are those of the company's time zone. Budgets of runs have `run`, and `concurrentRuns` has none.
                                 * @enum {unknown}
                                 */
                                window?: "minute" | "day" | "month" | "run";
                                /** @description Part of the amount at which a warning is logged. */
                                warnAt?: number;
                                /** @description A whole number; for the cost a string with a decimal number of dollars. */
                                used?: number | string;
                                /** @description A whole number; for the cost a string with a decimal number of dollars. */
                                reserved?: number | string;
                                /** @description End of the period, if it has one. */
                                resetsAt?: string;
                            }[];
                            /** @description IANA time zone of the days and months of all budgets of the company. Allowed only in the budget of the company itself; UTC if absent. */
                            timezone?: string;
                        }[];
                        nextCursor?: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getBudget: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                kind: string;
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The budget. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /** @enum {unknown} */
                        kind: "company" | "agent" | "user" | "token" | "run";
                        id: string;
                        limits: {
                            /** @enum {unknown} */
                            unit: "cost" | "tokens" | "runs" | "concurrentRuns" | "toolCalls" | "wallMs";
                            /** @description A whole number; for the cost a string with a decimal number of dollars. */
                            amount: number | string;
                            /**
                             * @description Period; days and months are those of the company's time zone. Budgets of runs have `run`, and `concurrentRuns` has none.
                             * @enum {unknown}
                             */
                            window?: "minute" | "day" | "month" | "run";
                            /** @description Part of the amount at which a warning is logged. */
                            warnAt?: number;
                            /** @description A whole number; for the cost a string with a decimal number of dollars. */
                            used?: number | string;
                            /** @description A whole number; for the cost a string with a decimal number of dollars. */
                            reserved?: number | string;
                            /** @description End of the period, if it has one. */
                            resetsAt?: string;
                        }[];
                        /** @description IANA time zone of the days and months of all budgets of the company. Allowed only in the budget of the company itself; UTC if absent. */
                        timezone?: string;
                    };
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    putBudget: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                kind: string;
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    limits: {
                        /** @enum {unknown} */
                        unit: "cost" | "tokens" | "runs" | "concurrentRuns" | "toolCalls" | "wallMs";
                        /** @description A whole number; for the cost a string with a decimal number of dollars. */
                        amount: number | string;
                        /**
                         * @description Period; days and months are those of the company's time zone. Budgets of runs have `run`, and `concurrentRuns` has none.
                         * @enum {unknown}
                         */
                        window?: "minute" | "day" | "month" | "run";
                        /** @description Part of the amount at which a warning is logged. */
                        warnAt?: number;
                    }[];
                };
            };
        };
        responses: {
            /** @description The budget was replaced. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /** @enum {unknown} */
                        kind: "company" | "agent" | "user" | "token" | "run";
                        id: string;
                        limits: {
                            /** @enum {unknown} */
                            unit: "cost" | "tokens" | "runs" | "concurrentRuns" | "toolCalls" | "wallMs";
                            /** @description A whole number; for the cost a string with a decimal number of dollars. */
                            amount: number | string;
                            /**
                             * @description Period; days and months are those of the company's time zone. Budgets of runs have `run`, and `concurrentRuns` has none.
                             * @enum {unknown}
                             */
                            window?: "minute" | "day" | "month" | "run";
                            /** @description Part of the amount at which a warning is logged. */
                            warnAt?: number;
                            /** @description A whole number; for the cost a string with a decimal number of dollars. */
                            used?: number | string;
                            /** @description A whole number; for the cost a string with a decimal number of dollars. */
                            reserved?: number | string;
                            /** @description End of the period, if it has one. */
                            resetsAt?: string;
                        }[];
                        /** @description IANA time zone of the days and months of all budgets of the company. Allowed only in the budget of the company itself; UTC if absent. */
                        timezone?: string;
                    };
                };
            };
            /** @description The budget was created. */
            201: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /** @enum {unknown} */
                        kind: "company" | "agent" | "user" | "token" | "run";
                        id: string;
                        limits: {
                            /** @enum {unknown} */
                            unit: "cost" | "tokens" | "runs" | "concurrentRuns" | "toolCalls" | "wallMs";
                            /** @description A whole number; for the cost a string with a decimal number of dollars. */
                            amount: number | string;
                            /**
                             * @description Period; days and months are those of the company's time zone. Budgets of runs have `run`, and `concurrentRuns` has none.
                             * @enum {unknown}
                             */
                            window?: "minute" | "day" | "month" | "run";
                            /** @description Part of the amount at which a warning is logged. */
                            warnAt?: number;
                            /** @description A whole number; for the cost a string with a decimal number of dollars. */
                            used?: number | string;
                            /** @description A whole number; for the cost a string with a decimal number of dollars. */
                            reserved?: number | string;
                            /** @description End of the period, if it has one. */
                            resetsAt?: string;
                        }[];
                        /** @description IANA time zone of the days and months of all budgets of the company. Allowed only in the budget of the company itself; UTC if absent. */
                        timezone?: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            422: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    deleteBudget: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
            };
            path: {
                kind: string;
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The limits no longer apply. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getSubscription: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The state, without tokens. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SubscriptionView"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    beginSubscriptionSignIn: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The code of a sign-in that was already open. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BegunSignInView"];
                };
            };
            /** @description The sign-in has started. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["BegunSignInView"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
            504: components["responses"]["Problem"];
        };
    };
    signOutOfSubscription: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The tokens were deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getSubscriptionSignIn: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The status. A final status is available for an hour. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SignInStatusView"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
            504: components["responses"]["Problem"];
        };
    };
    cancelSubscriptionSignIn: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The sign-in was cancelled; the issuer is no longer polled. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    createConsoleLink: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LinkInput"];
            };
        };
        responses: {
            /** @description The link. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LinkView"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getConsoleSession: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The user. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionView"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            421: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    signInToConsole: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SignInInput"];
            };
        };
        responses: {
            /** @description Signed in; `Set-Cookie` has the session. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            421: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    signOutOfConsole: {
        parameters: {
            query?: {
                /** @description Ends all of the user's sessions of the console. */
                all?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The session is ended, from the next request on. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            421: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    cron: {
        parameters: {
            query?: {
                /** @description Set to true to run due jobs. */
                run?: "true" | "false";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The number of jobs that are due or were run. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CronStatus"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listDocuments: {
        parameters: {
            query?: {
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of documents. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DocumentPage"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    reindexDocuments: {
        parameters: {
            query?: {
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
                /** @description Embeds only documents with vectors of this model; an empty text selects documents without vectors. */
                embedder?: string;
                /** @description With `all`, drops the vectors of the documents and embeds them again, for example after a repair of the model's server. */
                embeddings?: "missing" | "all";
                /** @description With `outdated`, extracts the originals again whose texts come from another version of the extractor. They are embedded after that. */
                texts?: "outdated";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The documents that wait to be embedded or extracted. */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AnnouncedDocuments"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getDocument: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The document. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["IndexedDocument"];
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    putDocument: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description Identifier of the document, unique in its company. */
                    id?: string;
                    /** @description Company of the document. */
                    companyId?: string;
                    /** @description User who owns the document. Absent in documents that every editor of the company may change. */
                    ownerId?: string | null;
                    /**
                     * @description Title of the document.
                     * @default
                     */
                    title?: string;
                    /**
                     * @description Text of the document, usually Markdown. Empty for an upload whose text is longer than 400 KiB or is not extracted
                     *     yet.
                     * @default
                     */
                    text?: string;
                    /**
                     * Format: uint64
                     * @description Number of changes since the document was created; set by the server.
                     */
                    revision?: number;
                    /** @description User who has made the latest change, if one has; set by the server. */
                    updatedBy?: string | null;
                    /**
                     * @description Uploaded original from which the text is extracted, if there is one; set by the server. A change of the text
                     *     replaces it.
                     */
                    content?: components["schemas"]["DocumentContent"] | null;
                };
            };
        };
        responses: {
            /** @description The document was replaced. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Document"];
                };
            };
            /** @description The document was created. */
            201: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Document"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    deleteDocument: {
        parameters: {
            query?: {
                /** @description Set to true to delete a document that agents name. */
                force?: "true" | "false";
            };
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The document was deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getDocumentContent: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The original. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "*/*": string;
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    putDocumentContent: {
        parameters: {
            query?: {
                /** @description Title of the document. */
                title?: string;
                /** @description A file of the caller, in place of a body. */
                fileId?: string;
            };
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
                /** @description Seconds for which the response waits for the end of the extraction (RFC 7240), at most 60. */
                Prefer?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "text/plain": string;
            };
        };
        responses: {
            /** @description The text is extracted. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Document"];
                };
            };
            /** @description The text is being extracted. */
            202: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UploadStatus"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            422: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    putDocumentOwner: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description User to whom the item is handed over. */
                    ownerId: string;
                };
            };
        };
        responses: {
            /** @description The document. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Document"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    reindexDocument: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
                /** @description Seconds for which the response waits for the end of the extraction (RFC 7240), at most 60. */
                Prefer?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The text is extracted. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Document"];
                };
            };
            /** @description The text is being extracted. */
            202: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UploadStatus"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            422: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getDocumentText: {
        parameters: {
            query?: {
                /** @description Position of the first byte; 0 by default. */
                start?: number;
                /** @description Position after the last byte; 64 KiB after `start` by default. */
                end?: number;
            };
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The part. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TextPart"];
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listDocumentVersions: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The versions, newest first. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["VersionList"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getDocumentVersion: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
                revision: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The version. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DocumentVersion"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    restoreDocument: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
                revision: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The document. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Document"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listFiles: {
        parameters: {
            query?: {
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of files. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FilePage"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    createFile: {
        parameters: {
            query?: {
                /** @description Name of the file. */
                name?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "*/*": string;
            };
        };
        responses: {
            /** @description The file. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FileView"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getFile: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The content. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "*/*": string;
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    deleteFile: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getLimits: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The limits. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        asOf: string;
                        limits: {
                            /** @description `minute` for a limit of sessions, `budget` for a limit of a budget, `default` for a limit that applies if no budget sets one. */
                            policy: string;
                            /** @enum {unknown} */
                            kind: "user" | "company" | "run";
                            /** @enum {unknown} */
                            unit: "runs" | "changes" | "cost" | "tokens" | "concurrentRuns" | "toolCalls";
                            /** @enum {unknown} */
                            window?: "minute" | "day" | "month" | "run";
                            /** @description The limit. A cost is a string with a decimal number of dollars. */
                            amount: number | string;
                            /** @description The used part. Absent for limits of each run. A cost is a string with a decimal number of dollars. */
                            used?: number | string;
                            /** @description The part that is reserved for calls in progress. A cost is a string with a decimal number of dollars. */
                            reserved?: number | string;
                            /** @description Part of the amount at which a warning is logged. */
                            warnAt?: number;
                            /** @description Time at which nothing is used if no further request is made. */
                            resetsAt?: string;
                        }[];
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listCatalogModels: {
        parameters: {
            query?: {
                /** @description Only models of this provider. */
                provider?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The models, in the order of provider and name. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /** Format: date */
                        asOf: string;
                        models: {
                            model: string;
                            /** @description Limit on prompt and answer together; on the prompt, where the vendor limits them separately. */
                            contextWindow?: number;
                            /** @description Limit on an answer. */
                            maxOutputTokens?: number;
                            /** @description Kinds of content that the model reads. */
                            input?: ("text" | "image")[];
                            /** @description True if the model calls tools. */
                            tools?: boolean;
                            /**
                             * @description Kind of JSON to which the vendor can constrain an answer.
                             * @enum {unknown}
                             */
                            structured?: "schema" | "object" | "none";
                            /** @description Levels of reasoning; only `default` for a model that reasons at a fixed level. */
                            reasoning?: ("default" | "none" | "minimal" | "low" | "medium" | "high" | "xhigh")[];
                            /** @description In dollars for a million tokens. */
                            prices?: {
                                /** @description Input tokens. */
                                input: string;
                                /** @description Input tokens read from the provider's cache. */
                                cachedInput: string;
                                /** @description Input tokens written to the provider's cache. */
                                cacheWrite: string;
                                /** @description Output tokens. */
                                output: string;
                                /** Format: date */
                                asOf: string;
                            };
                            provider: string;
                            /**
                             * @description Type of the provider; only for a provider of the company.
                             * @enum {unknown}
                             */
                            providerType?: "openai" | "openai-responses" | "anthropic" | "ollama";
                        }[];
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listProviders: {
        parameters: {
            query?: {
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of providers. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        providers: {
                            /**
                             * @description API of the provider.
                             * @enum {unknown}
                             */
                            type: "openai" | "openai-responses" | "anthropic" | "ollama";
                            /** @description Absent for the address of the server's settings. */
                            baseUrl?: string;
                            /** @description A key is shown as `***`. An absent key or `***` keeps the stored key unless the address changes; an empty key clears it. */
                            apiKey?: string;
                            models: {
                                model: string;
                                /** @description Limit on prompt and answer together; on the prompt, where the vendor limits them separately. */
                                contextWindow?: number;
                                /** @description Limit on an answer. */
                                maxOutputTokens?: number;
                                /** @description Kinds of content that the model reads. */
                                input?: ("text" | "image")[];
                                /** @description True if the model calls tools. */
                                tools?: boolean;
                                /**
                                 * @description Kind of JSON to which the vendor can constrain an answer.
                                 * @enum {unknown}
                                 */
                                structured?: "schema" | "object" | "none";
                                /** @description Levels of reasoning; only `default` for a model that reasons at a fixed level. */
                                reasoning?: ("default" | "none" | "minimal" | "low" | "medium" | "high" | "xhigh")[];
                                /** @description In dollars for a million tokens. */
                                prices?: {
                                    /** @description Input tokens. */
                                    input: string;
                                    /** @description Input tokens read from the provider's cache. */
                                    cachedInput?: string;
                                    /** @description Input tokens written to the provider's cache. */
                                    cacheWrite?: string;
                                    /** @description Output tokens. */
                                    output: string;
                                };
                            }[];
                            id: string;
                        }[];
                        nextCursor?: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getProvider: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The provider. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /**
                         * @description API of the provider.
                         * @enum {unknown}
                         */
                        type: "openai" | "openai-responses" | "anthropic" | "ollama";
                        /** @description Absent for the address of the server's settings. */
                        baseUrl?: string;
                        /** @description A key is shown as `***`. An absent key or `***` keeps the stored key unless the address changes; an empty key clears it. */
                        apiKey?: string;
                        models: {
                            model: string;
                            /** @description Limit on prompt and answer together; on the prompt, where the vendor limits them separately. */
                            contextWindow?: number;
                            /** @description Limit on an answer. */
                            maxOutputTokens?: number;
                            /** @description Kinds of content that the model reads. */
                            input?: ("text" | "image")[];
                            /** @description True if the model calls tools. */
                            tools?: boolean;
                            /**
                             * @description Kind of JSON to which the vendor can constrain an answer.
                             * @enum {unknown}
                             */
                            structured?: "schema" | "object" | "none";
                            /** @description Levels of reasoning; only `default` for a model that reasons at a fixed level. */
                            reasoning?: ("default" | "none" | "minimal" | "low" | "medium" | "high" | "xhigh")[];
                            /** @description In dollars for a million tokens. */
                            prices?: {
                                /** @description Input tokens. */
                                input: string;
                                /** @description Input tokens read from the provider's cache. */
                                cachedInput?: string;
                                /** @description Input tokens written to the provider's cache. */
                                cacheWrite?: string;
                                /** @description Output tokens. */
                                output: string;
                            };
                        }[];
                        id: string;
                    };
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    putProvider: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /**
                     * @description API of the provider.
                     * @enum {unknown}
                     */
                    type: "openai" | "openai-responses" | "anthropic" | "ollama";
                    /** @description Absent for the address of the server's settings. */
                    baseUrl?: string;
                    /** @description A key is shown as `***`. An absent key or `***` keeps the stored key unless the address changes; an empty key clears it. */
                    apiKey?: string;
                    models?: {
                        model: string;
                        /** @description Limit on prompt and answer together; on the prompt, where the vendor limits them separately. */
                        contextWindow?: number;
                        /** @description Limit on an answer. */
                        maxOutputTokens?: number;
                        /** @description Kinds of content that the model reads. */
                        input?: ("text" | "image")[];
                        /** @description True if the model calls tools. */
                        tools?: boolean;
                        /**
                         * @description Kind of JSON to which the vendor can constrain an answer.
                         * @enum {unknown}
                         */
                        structured?: "schema" | "object" | "none";
                        /** @description Levels of reasoning; only `default` for a model that reasons at a fixed level. */
                        reasoning?: ("default" | "none" | "minimal" | "low" | "medium" | "high" | "xhigh")[];
                        /** @description In dollars for a million tokens. */
                        prices?: {
                            /** @description Input tokens. */
                            input: string;
                            /** @description Input tokens read from the provider's cache. */
                            cachedInput?: string;
                            /** @description Input tokens written to the provider's cache. */
                            cacheWrite?: string;
                            /** @description Output tokens. */
                            output: string;
                        };
                    }[];
                };
            };
        };
        responses: {
            /** @description The provider was replaced. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /**
                         * @description API of the provider.
                         * @enum {unknown}
                         */
                        type: "openai" | "openai-responses" | "anthropic" | "ollama";
                        /** @description Absent for the address of the server's settings. */
                        baseUrl?: string;
                        /** @description A key is shown as `***`. An absent key or `***` keeps the stored key unless the address changes; an empty key clears it. */
                        apiKey?: string;
                        models: {
                            model: string;
                            /** @description Limit on prompt and answer together; on the prompt, where the vendor limits them separately. */
                            contextWindow?: number;
                            /** @description Limit on an answer. */
                            maxOutputTokens?: number;
                            /** @description Kinds of content that the model reads. */
                            input?: ("text" | "image")[];
                            /** @description True if the model calls tools. */
                            tools?: boolean;
                            /**
                             * @description Kind of JSON to which the vendor can constrain an answer.
                             * @enum {unknown}
                             */
                            structured?: "schema" | "object" | "none";
                            /** @description Levels of reasoning; only `default` for a model that reasons at a fixed level. */
                            reasoning?: ("default" | "none" | "minimal" | "low" | "medium" | "high" | "xhigh")[];
                            /** @description In dollars for a million tokens. */
                            prices?: {
                                /** @description Input tokens. */
                                input: string;
                                /** @description Input tokens read from the provider's cache. */
                                cachedInput?: string;
                                /** @description Input tokens written to the provider's cache. */
                                cacheWrite?: string;
                                /** @description Output tokens. */
                                output: string;
                            };
                        }[];
                        id: string;
                    };
                };
            };
            /** @description The provider was created. */
            201: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /**
                         * @description API of the provider.
                         * @enum {unknown}
                         */
                        type: "openai" | "openai-responses" | "anthropic" | "ollama";
                        /** @description Absent for the address of the server's settings. */
                        baseUrl?: string;
                        /** @description A key is shown as `***`. An absent key or `***` keeps the stored key unless the address changes; an empty key clears it. */
                        apiKey?: string;
                        models: {
                            model: string;
                            /** @description Limit on prompt and answer together; on the prompt, where the vendor limits them separately. */
                            contextWindow?: number;
                            /** @description Limit on an answer. */
                            maxOutputTokens?: number;
                            /** @description Kinds of content that the model reads. */
                            input?: ("text" | "image")[];
                            /** @description True if the model calls tools. */
                            tools?: boolean;
                            /**
                             * @description Kind of JSON to which the vendor can constrain an answer.
                             * @enum {unknown}
                             */
                            structured?: "schema" | "object" | "none";
                            /** @description Levels of reasoning; only `default` for a model that reasons at a fixed level. */
                            reasoning?: ("default" | "none" | "minimal" | "low" | "medium" | "high" | "xhigh")[];
                            /** @description In dollars for a million tokens. */
                            prices?: {
                                /** @description Input tokens. */
                                input: string;
                                /** @description Input tokens read from the provider's cache. */
                                cachedInput?: string;
                                /** @description Input tokens written to the provider's cache. */
                                cacheWrite?: string;
                                /** @description Output tokens. */
                                output: string;
                            };
                        }[];
                        id: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    deleteProvider: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The provider was deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    pulseCallback: {
        parameters: {
            query?: never;
            header?: {
                /** @description Standard Webhooks. */
                "webhook-id"?: string;
                /** @description Standard Webhooks. */
                "webhook-timestamp"?: string;
                /** @description Standard Webhooks. */
                "webhook-signature"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @enum {string} */
                    kind: "tool" | "agent";
                    userId: string;
                    companyId: string;
                    agentId: string;
                    toolId?: string;
                    assignmentId?: string;
                    arguments?: Record<string, unknown>;
                    message?: string;
                    todoListId?: string;
                    threadId?: string;
                    timezone?: string;
                    jobId: string;
                    occurrence: number;
                    scheduledFor: string;
                    attempt: number;
                };
            };
        };
        responses: {
            /** @description The occurrence is done, by this or an earlier call. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        status: string;
                        jobId: string;
                        occurrence: number;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            402: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            410: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            422: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
            504: components["responses"]["Problem"];
        };
    };
    listOwnJobs: {
        parameters: {
            query?: {
                /** @description Only jobs in this state; `open` means all states that are not final. */
                state?: string;
                /** @description Only jobs of this agent. */
                agentId?: string;
                /** @description Only jobs that call this tool. */
                toolId?: string;
                /** @description Only jobs of this assignment. */
                assignmentId?: string;
                /** @description `asc`: the oldest first; `desc`: the newest first. */
                order?: "asc" | "desc";
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of jobs. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobViewPage"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    scheduleOwnJob: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["OwnJobRequest"] & {
                    /**
                     * @description Payload of a job. Sent to the scheduler when the job is created and returned in the callback. Unknown fields, as a
                     *     newer version may send them, are ignored.
                     */
                    payload?: {
                        /** @description Kind of work. */
                        kind: components["schemas"]["JobKind"];
                        /** @description User on whose behalf the job runs. */
                        userId?: string;
                        /** @description Company of the user. */
                        companyId?: string;
                        /** @description Agent that runs the turn or calls the tool. */
                        agentId: string;
                        /** @description Tool name; required for the kind `tool`. */
                        toolId?: string | null;
                        /** @description Id of the tool assignment that this job implements. */
                        assignmentId?: string | null;
                        /** @description Arguments of the tool. */
                        arguments?: {
                            [key: string]: unknown;
                        } | null;
                        /** @description User message of the turn; required for the kind `agent`. */
                        message?: string | null;
                        /** @description Todo list that the tools work on; by default the agent's first. */
                        todoListId?: string | null;
                        /** @description Thread of the user that stores the turns, for the kind `agent`; by default, the job has a separate thread. */
                        threadId?: string | null;
                        /** @description IANA time zone of the user. */
                        timezone?: string | null;
                        /**
                         * @description `traceparent` (W3C Trace Context) of the run that has created the job; deliveries continue its trace. An invalid one
                         *     counts as absent.
                         */
                        traceparent?: string | null;
                    };
                } & components["schemas"]["ScheduleSpec"];
            };
        };
        responses: {
            /** @description The job is scheduled. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScheduledJob"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getOwnJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The job. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobView"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    cancelOwnJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The job was cancelled. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CancelResult"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    pauseOwnJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The job's state. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobStatus"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    redriveOwnJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The job's state. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobStatus"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    rescheduleOwnJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ScheduleSpec"];
            };
        };
        responses: {
            /** @description The job was rescheduled. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScheduledJob"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    resumeOwnJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The job's state. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobStatus"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    nextOccurrences: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NextRequest"];
            };
        };
        responses: {
            /** @description The occurrences. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NextOccurrences"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    pulseStatus: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The configuration and the result of a health check. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PulseStatus"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listRuns: {
        parameters: {
            query?: {
                /** @description Filters by thread. */
                threadId?: string;
                /** @description Filters by agent. */
                agentId?: string;
                /** @description Filters by state. */
                state?: string;
                /** @description Filters by kind of cause. */
                kind?: string;
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of runs. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        runs: {
                            id: string;
                            threadId: string;
                            turnId: string;
                            agentId: string;
                            /** @enum {string} */
                            state: "queued" | "running" | "waiting" | "completed" | "cancelled" | "failed" | "interrupted";
                            /** @enum {string} */
                            reason?: "requested" | "disconnected" | "displaced" | "deleted";
                            trigger: {
                                /** @enum {string} */
                                kind: "chat" | "regenerate" | "edit" | "resume" | "tools" | "approval" | "job" | "proactive";
                                reason?: string;
                            };
                            parentId?: string;
                            nodeIds: string[];
                            continues?: string;
                            continuedBy?: string;
                            /** @enum {string} */
                            onDisconnect?: "cancel" | "continue";
                            graceMs?: number;
                            attached?: number;
                            events?: Record<string, unknown>;
                            backend?: string;
                            requestSha256?: string;
                            selection?: {
                                backend: string;
                                rule?: string;
                                container?: string;
                            };
                            timing?: {
                                queuedMs?: number;
                                preparedMs?: number;
                                firstContentMs?: number;
                                rounds?: {
                                    startedMs: number;
                                    firstContentMs?: number;
                                    endedMs?: number;
                                    outputTokens?: number;
                                    attempts?: number;
                                }[];
                                tools?: {
                                    callId: string;
                                    name: string;
                                    startedMs: number;
                                    endedMs?: number;
                                    isError?: boolean;
                                }[];
                            };
                            attempts?: {
                                round: number;
                                attempt?: number;
                                entry: number;
                                provider: string;
                                model: string;
                                reason?: string;
                                status?: number;
                                waitedMs: number;
                                requestSha256?: string;
                            }[];
                            finishReason?: string;
                            outcome?: Record<string, unknown>;
                            usage: Record<string, unknown>[];
                            error?: {
                                code: string;
                                message: string;
                            };
                            createdAt: string;
                            startedAt?: string;
                            endedAt?: string;
                        }[];
                        nextCursor?: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getRun: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The run. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        id: string;
                        threadId: string;
                        turnId: string;
                        agentId: string;
                        /** @enum {string} */
                        state: "queued" | "running" | "waiting" | "completed" | "cancelled" | "failed" | "interrupted";
                        /** @enum {string} */
                        reason?: "requested" | "disconnected" | "displaced" | "deleted";
                        trigger: {
                            /** @enum {string} */
                            kind: "chat" | "regenerate" | "edit" | "resume" | "tools" | "approval" | "job" | "proactive";
                            reason?: string;
                        };
                        parentId?: string;
                        nodeIds: string[];
                        continues?: string;
                        continuedBy?: string;
                        /** @enum {string} */
                        onDisconnect?: "cancel" | "continue";
                        graceMs?: number;
                        attached?: number;
                        events?: Record<string, unknown>;
                        backend?: string;
                        requestSha256?: string;
                        selection?: {
                            backend: string;
                            rule?: string;
                            container?: string;
                        };
                        timing?: {
                            queuedMs?: number;
                            preparedMs?: number;
                            firstContentMs?: number;
                            rounds?: {
                                startedMs: number;
                                firstContentMs?: number;
                                endedMs?: number;
                                outputTokens?: number;
                                attempts?: number;
                            }[];
                            tools?: {
                                callId: string;
                                name: string;
                                startedMs: number;
                                endedMs?: number;
                                isError?: boolean;
                            }[];
                        };
                        attempts?: {
                            round: number;
                            attempt?: number;
                            entry: number;
                            provider: string;
                            model: string;
                            reason?: string;
                            status?: number;
                            waitedMs: number;
                            requestSha256?: string;
                        }[];
                        finishReason?: string;
                        outcome?: Record<string, unknown>;
                        usage: Record<string, unknown>[];
                        error?: {
                            code: string;
                            message: string;
                        };
                        createdAt: string;
                        startedAt?: string;
                        endedAt?: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getRunBundle: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The bundle. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        format: string;
                        sha256: string;
                        /** @description The run and its stored records. */
                        record: Record<string, unknown>;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    cancelRun: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The run as it is now; it ends within a second. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        id: string;
                        threadId: string;
                        turnId: string;
                        agentId: string;
                        /** @enum {string} */
                        state: "queued" | "running" | "waiting" | "completed" | "cancelled" | "failed" | "interrupted";
                        /** @enum {string} */
                        reason?: "requested" | "disconnected" | "displaced" | "deleted";
                        trigger: {
                            /** @enum {string} */
                            kind: "chat" | "regenerate" | "edit" | "resume" | "tools" | "approval" | "job" | "proactive";
                            reason?: string;
                        };
                        parentId?: string;
                        nodeIds: string[];
                        continues?: string;
                        continuedBy?: string;
                        /** @enum {string} */
                        onDisconnect?: "cancel" | "continue";
                        graceMs?: number;
                        attached?: number;
                        events?: Record<string, unknown>;
                        backend?: string;
                        requestSha256?: string;
                        selection?: {
                            backend: string;
                            rule?: string;
                            container?: string;
                        };
                        timing?: {
                            queuedMs?: number;
                            preparedMs?: number;
                            firstContentMs?: number;
                            rounds?: {
                                startedMs: number;
                                firstContentMs?: number;
                                endedMs?: number;
                                outputTokens?: number;
                                attempts?: number;
                            }[];
                            tools?: {
                                callId: string;
                                name: string;
                                startedMs: number;
                                endedMs?: number;
                                isError?: boolean;
                            }[];
                        };
                        attempts?: {
                            round: number;
                            attempt?: number;
                            entry: number;
                            provider: string;
                            model: string;
                            reason?: string;
                            status?: number;
                            waitedMs: number;
                            requestSha256?: string;
                        }[];
                        finishReason?: string;
                        outcome?: Record<string, unknown>;
                        usage: Record<string, unknown>[];
                        error?: {
                            code: string;
                            message: string;
                        };
                        createdAt: string;
                        startedAt?: string;
                        endedAt?: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getRunEvents: {
        parameters: {
            query?: {
                /** @description The number of the last event that the client has received. The header Last-Event-ID takes precedence. */
                after?: number;
                /** @description A visitor of an agent that the caller owns. */
                owner?: string;
                /** @description True waits for further events of a live run. */
                wait?: boolean;
                /** @description The format of the response; by default it is negotiated by `Accept`. */
                format?: "ndjson" | "sse" | "ui-message" | "n8n" | "json";
            };
            header?: {
                /** @description The number of the last event. */
                "Last-Event-ID"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A stream of AG-UI events, or one JSON object. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "text/plain": string;
                    "application/json": {
                        threadId: string;
                        runId: string;
                        output: string;
                        toolCalls?: unknown[];
                        usage?: unknown[];
                        finishReason?: string;
                        /** @description The answer, if a JSON format was requested. */
                        object?: unknown;
                    };
                };
            };
            /** @description The run has ended, and no events follow. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            406: components["responses"]["Problem"];
            410: components["responses"]["Problem"];
            422: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            501: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
            504: components["responses"]["Problem"];
        };
    };
    getRunPrompt: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The manifest. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        requestSha256: string;
                        backend: string;
                        parts: {
                            id: string;
                            source: string;
                            /** @enum {string} */
                            stability: "role" | "agent" | "session" | "turn";
                            /** @enum {string} */
                            placement: "system" | "detached" | "latestTurn";
                            tokens: number;
                            bytes: number;
                            sha256: string;
                            content?: string;
                        }[];
                        tools: {
                            name: string;
                            sha256: string;
                            tokens: number;
                        }[];
                        messages: number;
                        tokens: {
                            system: number;
                            tools: number;
                            messages: number;
                        };
                        tokenCounter: string;
                        trimmedMessages?: number;
                        cache: {
                            stablePrefixBytes: number;
                            firstChangedPart?: string;
                            previousRunId?: string;
                        };
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listCompanySettings: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The settings. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        settings: {
                            /** @description Calls of tools with one of these hints need an approval. `notReadOnly` means all tools that are not annotated as read-only. */
                            annotations: ("destructive" | "openWorld" | "notReadOnly")[];
                            /** @enum {unknown} */
                            id: "approvalFloor";
                        }[];
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getCompanySetting: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The setting. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /** @description Calls of tools with one of these hints need an approval. `notReadOnly` means all tools that are not annotated as read-only. */
                        annotations: ("destructive" | "openWorld" | "notReadOnly")[];
                        /** @enum {unknown} */
                        id: "approvalFloor";
                    };
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    putCompanySetting: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description Calls of tools with one of these hints need an approval. `notReadOnly` means all tools that are not annotated as read-only. */
                    annotations: ("destructive" | "openWorld" | "notReadOnly")[];
                };
            };
        };
        responses: {
            /** @description The setting was replaced. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /** @description Calls of tools with one of these hints need an approval. `notReadOnly` means all tools that are not annotated as read-only. */
                        annotations: ("destructive" | "openWorld" | "notReadOnly")[];
                        /** @enum {unknown} */
                        id: "approvalFloor";
                    };
                };
            };
            /** @description The setting was created. */
            201: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /** @description Calls of tools with one of these hints need an approval. `notReadOnly` means all tools that are not annotated as read-only. */
                        annotations: ("destructive" | "openWorld" | "notReadOnly")[];
                        /** @enum {unknown} */
                        id: "approvalFloor";
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    deleteCompanySetting: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The setting was deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    debugPrompt: {
        parameters: {
            query?: {
                /** @description `all`: with the request of each model that the turn may go to. */
                attempts?: string;
                /** @description `legacy`: as older clients send it. */
                client?: string;
                /** @description Same as in the chat request. */
                agentId?: string;
                /** @description Same as in the chat request. */
                message?: string;
                /** @description Same as in the chat request. */
                threadId?: string;
                /** @description Same as in the chat request. */
                todoListId?: string;
                /** @description Same as in the chat request. */
                timezone?: string;
                /** @description Same as in the chat request. */
                trigger?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The prompt, its parts, and the request to the backend. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            422: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    previewPrompt: {
        parameters: {
            query?: {
                /** @description `all`: with the request of each model that the turn may go to. */
                attempts?: string;
                /** @description `legacy`: as older clients send it. */
                client?: string;
                /** @description Same as in the chat request. */
                agentId?: string;
                /** @description Same as in the chat request. */
                message?: string;
                /** @description Same as in the chat request. */
                threadId?: string;
                /** @description Same as in the chat request. */
                todoListId?: string;
                /** @description Same as in the chat request. */
                timezone?: string;
                /** @description Same as in the chat request. */
                trigger?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The prompt, its parts, and the request to the backend. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            422: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    previewPromptOf: {
        parameters: {
            query?: {
                /** @description `all`: with the request of each model that the turn may go to. */
                attempts?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    agentId?: string;
                    /** @description Text, or a user message. */
                    message?: unknown;
                    /** @description The conversation, oldest first. */
                    messages?: Record<string, unknown>[];
                    threadId?: string;
                    runId?: string;
                    tabId?: string;
                    todoListId?: string;
                    timezone?: string;
                    widgetToken?: string;
                    userId?: string;
                    companyId?: string;
                    /** @description True stores the run, false does not; by default, a run with a `threadId` is stored. */
                    store?: boolean;
                    /** @enum {string} */
                    history?: "server" | "client";
                    /**
                     * @description Effect of a disconnect on a stored run.
                     * @enum {string}
                     */
                    onDisconnect?: "cancel" | "continue";
                    /** @description Time without a client after which the run is cancelled. */
                    graceMs?: number;
                    /**
                     * @description Behaviour if another run of the thread has not ended.
                     * @enum {string}
                     */
                    onBusy?: "reject" | "interrupt" | "queue";
                    /** @description Answers 202 at once; the run continues without a client. */
                    background?: boolean;
                    parentId?: string | null;
                    trigger?: string;
                    messageId?: string;
                    title?: string;
                    metadata?: Record<string, unknown>;
                    pageContext?: unknown;
                    blocksContext?: unknown[];
                    toolChoice?: unknown;
                    /** @description Format of the answer. */
                    responseFormat?: {
                        /** @enum {string} */
                        type: "text" | "json";
                        name?: string;
                        /** @description JSON Schema of the answer. */
                        schema?: Record<string, unknown>;
                        strict?: boolean;
                        repairs?: number;
                    };
                };
            };
        };
        responses: {
            /** @description The prompt, its parts, and the request to the backend. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, unknown>;
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            422: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    privateChat: {
        parameters: {
            query?: {
                /** @description The format of the response; by default it is negotiated by `Accept`. */
                format?: "ndjson" | "sse" | "ui-message" | "n8n" | "json";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    agentId?: string;
                    /** @description Text, or a user message. */
                    message?: unknown;
                    /** @description The conversation, oldest first. */
                    messages?: Record<string, unknown>[];
                    threadId?: string;
                    runId?: string;
                    tabId?: string;
                    todoListId?: string;
                    timezone?: string;
                    widgetToken?: string;
                    userId?: string;
                    companyId?: string;
                    /** @description True stores the run, false does not; by default, a run with a `threadId` is stored. */
                    store?: boolean;
                    /** @enum {string} */
                    history?: "server" | "client";
                    /**
                     * @description Effect of a disconnect on a stored run.
                     * @enum {string}
                     */
                    onDisconnect?: "cancel" | "continue";
                    /** @description Time without a client after which the run is cancelled. */
                    graceMs?: number;
                    /**
                     * @description Behaviour if another run of the thread has not ended.
                     * @enum {string}
                     */
                    onBusy?: "reject" | "interrupt" | "queue";
                    /** @description Answers 202 at once; the run continues without a client. */
                    background?: boolean;
                    parentId?: string | null;
                    trigger?: string;
                    messageId?: string;
                    title?: string;
                    metadata?: Record<string, unknown>;
                    pageContext?: unknown;
                    blocksContext?: unknown[];
                    toolChoice?: unknown;
                    /** @description Format of the answer. */
                    responseFormat?: {
                        /** @enum {string} */
                        type: "text" | "json";
                        name?: string;
                        /** @description JSON Schema of the answer. */
                        schema?: Record<string, unknown>;
                        strict?: boolean;
                        repairs?: number;
                    };
                };
            };
        };
        responses: {
            /** @description A stream of AG-UI events, or one JSON object. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "text/plain": string;
                    "application/json": {
                        threadId: string;
                        runId: string;
                        output: string;
                        toolCalls?: unknown[];
                        usage?: unknown[];
                        finishReason?: string;
                        /** @description The answer, if a JSON format was requested. */
                        object?: unknown;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            406: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            422: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            501: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
            504: components["responses"]["Problem"];
        };
    };
    listThreads: {
        parameters: {
            query?: {
                /** @description Filters by agent. */
                agentId?: string;
                /** @description Archived threads; `false` by default. */
                archived?: "false" | "true" | "any";
                /** @description Filters by state. */
                status?: "idle" | "running" | "waiting" | "awaitingTools";
                /** @description Filters by origin. */
                origin?: "chat" | "job" | "proactive" | "client";
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of threads. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        threads: {
                            id: string;
                            agentId: string;
                            title: string;
                            /** @enum {string} */
                            titleFrom: "message" | "user" | "model";
                            /** @enum {string} */
                            status: "idle" | "running" | "waiting" | "awaitingTools";
                            activeRunId?: string;
                            /** @description The leaf of the path that is shown and continued. */
                            head?: string;
                            archived: boolean;
                            /** @enum {string} */
                            origin: "chat" | "job" | "proactive" | "client";
                            /** @description The messages of all branches; absent for visitors. */
                            messageCount?: number;
                            metadata: Record<string, unknown>;
                            createdAt?: string;
                            lastActivityAt?: string;
                            expiresAt?: string;
                            version?: number;
                        }[];
                        nextCursor?: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    createThread: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    id?: string;
                    agentId: string;
                    title?: string;
                    metadata?: Record<string, unknown>;
                    /** @description In any format of a chat request. */
                    messages?: Record<string, unknown>[];
                };
            };
        };
        responses: {
            /** @description The thread. */
            201: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        id: string;
                        agentId: string;
                        title: string;
                        /** @enum {string} */
                        titleFrom: "message" | "user" | "model";
                        /** @enum {string} */
                        status: "idle" | "running" | "waiting" | "awaitingTools";
                        activeRunId?: string;
                        /** @description The leaf of the path that is shown and continued. */
                        head?: string;
                        archived: boolean;
                        /** @enum {string} */
                        origin: "chat" | "job" | "proactive" | "client";
                        /** @description The messages of all branches; absent for visitors. */
                        messageCount?: number;
                        metadata: Record<string, unknown>;
                        createdAt?: string;
                        lastActivityAt?: string;
                        expiresAt?: string;
                        version?: number;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    deleteThreads: {
        parameters: {
            query?: {
                /** @description Filters by agent. */
                agentId?: string;
                /** @description Only threads whose last activity was before this time (RFC 3339). */
                before?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The number of deleted threads. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        deleted: number;
                        more: boolean;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    exportThreads: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One JSON object per line, as `exportThread` returns it. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": string;
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getThread: {
        parameters: {
            query?: {
                /** @description A visitor of an agent that the caller owns. */
                owner?: string;
                /** @description The messages to return; `path` by default. */
                messages?: "path" | "tree" | "none";
                /** @description The last message of the path; the head by default. */
                at?: string;
                /** @description The format of the messages. */
                format?: "ag-ui" | "ui-message";
                /** @description Maximum number of messages. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The thread. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        id: string;
                        agentId: string;
                        title: string;
                        /** @enum {string} */
                        titleFrom: "message" | "user" | "model";
                        /** @enum {string} */
                        status: "idle" | "running" | "waiting" | "awaitingTools";
                        activeRunId?: string;
                        /** @description The leaf of the path that is shown and continued. */
                        head?: string;
                        archived: boolean;
                        /** @enum {string} */
                        origin: "chat" | "job" | "proactive" | "client";
                        /** @description The messages of all branches; absent for visitors. */
                        messageCount?: number;
                        metadata: Record<string, unknown>;
                        createdAt?: string;
                        lastActivityAt?: string;
                        expiresAt?: string;
                        version?: number;
                        nodes?: {
                            id: string;
                            parentId?: string;
                            turnId: string;
                            runId?: string;
                            /** @enum {string} */
                            status: "complete" | "incomplete" | "cancelled" | "deleted";
                            /** @enum {string} */
                            origin: "run" | "user" | "client";
                            createdAt: string;
                            siblings: {
                                index: number;
                                count: number;
                            };
                            feedback?: Record<string, unknown>;
                            /** @description AG-UI's message, or the AI SDK's `UIMessage`. */
                            message: Record<string, unknown>;
                        }[];
                        nextCursor?: string;
                    };
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    deleteThread: {
        parameters: {
            query?: {
                /** @description A visitor of an agent that the caller owns. */
                owner?: string;
            };
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The thread was deleted. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    patchThread: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-Match"?: string;
            };
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    title?: string;
                    archived?: boolean;
                    metadata?: Record<string, unknown>;
                    /** @description A message; its newest leaf becomes the head. */
                    head?: string;
                };
            };
        };
        responses: {
            /** @description The thread. */
            200: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        id: string;
                        agentId: string;
                        title: string;
                        /** @enum {string} */
                        titleFrom: "message" | "user" | "model";
                        /** @enum {string} */
                        status: "idle" | "running" | "waiting" | "awaitingTools";
                        activeRunId?: string;
                        /** @description The leaf of the path that is shown and continued. */
                        head?: string;
                        archived: boolean;
                        /** @enum {string} */
                        origin: "chat" | "job" | "proactive" | "client";
                        /** @description The messages of all branches; absent for visitors. */
                        messageCount?: number;
                        metadata: Record<string, unknown>;
                        createdAt?: string;
                        lastActivityAt?: string;
                        expiresAt?: string;
                        version?: number;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            412: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    cancelThread: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The thread as it is now. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        id: string;
                        agentId: string;
                        title: string;
                        /** @enum {string} */
                        titleFrom: "message" | "user" | "model";
                        /** @enum {string} */
                        status: "idle" | "running" | "waiting" | "awaitingTools";
                        activeRunId?: string;
                        /** @description The leaf of the path that is shown and continued. */
                        head?: string;
                        archived: boolean;
                        /** @enum {string} */
                        origin: "chat" | "job" | "proactive" | "client";
                        /** @description The messages of all branches; absent for visitors. */
                        messageCount?: number;
                        metadata: Record<string, unknown>;
                        createdAt?: string;
                        lastActivityAt?: string;
                        expiresAt?: string;
                        version?: number;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    exportThread: {
        parameters: {
            query?: {
                /** @description The format; `json` by default. */
                format?: "json" | "markdown";
                /** @description A visitor of an agent that the caller owns. */
                owner?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The thread. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        thread: {
                            id: string;
                            agentId: string;
                            title: string;
                            /** @enum {string} */
                            titleFrom: "message" | "user" | "model";
                            /** @enum {string} */
                            status: "idle" | "running" | "waiting" | "awaitingTools";
                            activeRunId?: string;
                            /** @description The leaf of the path that is shown and continued. */
                            head?: string;
                            archived: boolean;
                            /** @enum {string} */
                            origin: "chat" | "job" | "proactive" | "client";
                            /** @description The messages of all branches; absent for visitors. */
                            messageCount?: number;
                            metadata: Record<string, unknown>;
                            createdAt?: string;
                            lastActivityAt?: string;
                            expiresAt?: string;
                            version?: number;
                        };
                        nodes: Record<string, unknown>[];
                        runs: Record<string, unknown>[];
                        approvals: Record<string, unknown>[];
                        feedback: Record<string, unknown>[];
                    };
                    "text/markdown": string;
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    forkThread: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    at?: string;
                    id?: string;
                    agentId?: string;
                    title?: string;
                };
            };
        };
        responses: {
            /** @description The new thread. */
            201: {
                headers: {
                    /** @description The resource's version. */
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        id: string;
                        agentId: string;
                        title: string;
                        /** @enum {string} */
                        titleFrom: "message" | "user" | "model";
                        /** @enum {string} */
                        status: "idle" | "running" | "waiting" | "awaitingTools";
                        activeRunId?: string;
                        /** @description The leaf of the path that is shown and continued. */
                        head?: string;
                        archived: boolean;
                        /** @enum {string} */
                        origin: "chat" | "job" | "proactive" | "client";
                        /** @description The messages of all branches; absent for visitors. */
                        messageCount?: number;
                        metadata: Record<string, unknown>;
                        createdAt?: string;
                        lastActivityAt?: string;
                        expiresAt?: string;
                        version?: number;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    addThreadMessages: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description In any format of a chat request. */
                    messages: Record<string, unknown>[];
                    /** @description The message below which they are added; the head by default, `null` for a new root. */
                    parentId?: string | null;
                };
            };
        };
        responses: {
            /** @description The messages. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        nodes: {
                            id: string;
                            parentId?: string;
                            turnId: string;
                            runId?: string;
                            /** @enum {string} */
                            status: "complete" | "incomplete" | "cancelled" | "deleted";
                            /** @enum {string} */
                            origin: "run" | "user" | "client";
                            createdAt: string;
                            siblings: {
                                index: number;
                                count: number;
                            };
                            feedback?: Record<string, unknown>;
                            /** @description AG-UI's message, or the AI SDK's `UIMessage`. */
                            message: Record<string, unknown>;
                        }[];
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    deleteThreadMessage: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
                node: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The content was erased. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    putFeedback: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
                node: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @enum {string} */
                    rating: "up" | "down";
                    /** @description At most 2048 bytes. */
                    comment?: string;
                    /**
                     * @description True if the agent's owner may read the rated words.
                     * @default false
                     */
                    share?: boolean;
                    tags?: string[];
                };
            };
        };
        responses: {
            /** @description The rating. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /** @enum {string} */
                        rating: "up" | "down";
                        /** @description At most 2048 bytes. */
                        comment?: string;
                        /**
                         * @description True if the agent's owner may read the rated words.
                         * @default false
                         */
                        share: boolean;
                        tags?: string[];
                        id: string;
                        createdAt: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    deleteFeedback: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
                node: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The message has no rating. */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    listUsage: {
        parameters: {
            query?: {
                /** @description First day in UTC; by default 30 days before the last one, at most 400. */
                from?: string;
                /** @description Last day in UTC; by default today. */
                to?: string;
                /** @description Some of `day`, `agent`, `user`, `provider`, `model` and `caller`, separated by commas. */
                groupBy?: string;
                /** @description Filters by agent. */
                agentId?: string;
                /** @description Only usage of this user, or of a widget token: `widget:<tokenId>`. */
                userId?: string;
                /** @description Maximum number of rows. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of sums, in the order of their groups. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /** @constant */
                        currency: "USD";
                        asOf: string;
                        rows: {
                            /** @description Runs whose first call is among these. */
                            runs: number;
                            /** @description Calls of models. */
                            calls: number;
                            /** @description Input tokens. */
                            inputTokens: number;
                            /** @description Input tokens read from the provider's cache; part of the input. */
                            cachedInputTokens: number;
                            /** @description Input tokens written to the provider's cache; part of the input. */
                            cacheWriteTokens: number;
                            /** @description Output tokens. */
                            outputTokens: number;
                            /** @description Reasoning tokens; part of the output. */
                            reasoningTokens: number;
                            /** @description Tool calls. */
                            toolCalls: number;
                            /** @description Cost in dollars of the calls whose price is known. */
                            cost: string;
                            /** @description Part of the price that comes from calls with estimated token counts. */
                            estimatedCost: string;
                            /** @description Calls of models whose price is unknown. */
                            unpricedCalls: number;
                            day?: string;
                            agentId?: string;
                            userId?: string;
                            provider?: string;
                            model?: string;
                            caller?: string;
                        }[];
                        nextCursor?: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getRunUsage: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                runId: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The run's calls. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /** @description Calls of models whose price is unknown. */
                        unpricedCalls: number;
                        /** @description Calls of models. */
                        calls: number;
                        /** @description Input tokens. */
                        inputTokens: number;
                        /** @description Input tokens read from the provider's cache; part of the input. */
                        cachedInputTokens: number;
                        /** @description Input tokens written to the provider's cache; part of the input. */
                        cacheWriteTokens: number;
                        /** @description Output tokens. */
                        outputTokens: number;
                        /** @description Reasoning tokens; part of the output. */
                        reasoningTokens: number;
                        /** @description Tool calls. */
                        toolCalls: number;
                        /** @description Cost in dollars of the calls whose price is known. */
                        cost: string;
                        /** @description Part of the price that comes from calls with estimated token counts. */
                        estimatedCost: string;
                        currency: string;
                        runId: string;
                        agentId: string;
                        userId: string;
                        caller: string;
                        entries: {
                            /** @description Number of the model's answer in the run. */
                            round: number;
                            /** @description Number of the attempt at the answer. */
                            attempt: number;
                            /** @enum {unknown} */
                            operation?: "chat" | "compact" | "embed";
                            provider: string;
                            model: string;
                            /** @description Price in dollars; null if it is unknown. */
                            cost?: string | null;
                            /** @description Date of the price; `role` if the role sets it. */
                            priceAsOf?: string;
                            /** @description True if the provider has not reported all counts. */
                            estimated?: boolean;
                            /** @description `ok`, `cancelled`, or the code of the error. */
                            outcome?: string;
                            endedAt?: string;
                            /** @description Input tokens. */
                            inputTokens?: number;
                            /** @description Input tokens read from the provider's cache; part of the input. */
                            cachedInputTokens?: number;
                            /** @description Input tokens written to the provider's cache; part of the input. */
                            cacheWriteTokens?: number;
                            /** @description Output tokens. */
                            outputTokens?: number;
                            /** @description Reasoning tokens; part of the output. */
                            reasoningTokens?: number;
                        }[];
                        /** @description True if the run has more than 1,000 calls; `entries` and the sums contain the first 1,000. */
                        truncated?: boolean;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getConsoleAsset: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                path: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The file. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/css": string;
                    "text/javascript": string;
                    "image/svg+xml": string;
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            404: components["responses"]["Problem"];
            421: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
        };
    };
    runtimeChat: {
        parameters: {
            query?: {
                /** @description The format of the response; by default it is negotiated by `Accept`. */
                format?: "ndjson" | "sse" | "ui-message" | "n8n" | "json";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /**
                     * @example openai
                     * @example ollama
                     */
                    provider: string;
                    model: string;
                    systemPrompt?: string;
                    /** @description The conversation, oldest first. */
                    messages: Record<string, unknown>[];
                    tools?: unknown[];
                    mcpServerUrl?: string;
                    enableThinking?: boolean;
                    apiKey?: string;
                    baseUrl?: string;
                    toolChoice?: unknown;
                    /** @description Parameters of the model's calls. */
                    parameters?: {
                        temperature?: number;
                        maxOutputTokens?: number;
                        topP?: number;
                        topK?: number;
                        presencePenalty?: number;
                        frequencyPenalty?: number;
                        stopSequences?: string[];
                        seed?: number;
                        /** @enum {unknown} */
                        reasoning?: "default" | "none" | "minimal" | "low" | "medium" | "high" | "xhigh";
                        extraBody?: Record<string, unknown>;
                    };
                };
            };
        };
        responses: {
            /** @description A stream of AG-UI events, or one JSON object. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-ndjson": string;
                    "text/event-stream": string;
                    "text/plain": string;
                    "application/json": {
                        threadId: string;
                        runId: string;
                        output: string;
                        toolCalls?: unknown[];
                        usage?: unknown[];
                        finishReason?: string;
                        /** @description The answer, if a JSON format was requested. */
                        object?: unknown;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            406: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            422: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            501: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
            504: components["responses"]["Problem"];
        };
    };
    codingAuthDevice: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    scope?: string;
                };
            };
        };
        responses: {
            /** @description The codes of the sign-in. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /** @description An opaque handle of the sign-in, at most 2 KiB. */
                        device_code: string;
                        user_code: string;
                        verification_uri: string;
                        verification_uri_complete?: string;
                        expires_in: number;
                        interval: number;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
            504: components["responses"]["Problem"];
        };
    };
    codingAuthRefresh: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description It is never logged, and may be valid once only. */
                    refresh_token: string;
                };
            };
        };
        responses: {
            /** @description The new tokens. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        access_token: string;
                        /** @constant */
                        token_type: "Bearer";
                        expires_in: number;
                        /** @description Absent if the previous one stays valid. */
                        refresh_token?: string;
                        scope?: string;
                        /** @description The person's account at the vendor. */
                        account_id?: string;
                        /** @description The account's plan. */
                        plan?: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
            504: components["responses"]["Problem"];
        };
    };
    codingAuthRevoke: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description It is never logged. */
                    token: string;
                    /** @enum {unknown} */
                    token_type_hint?: "access_token" | "refresh_token";
                };
            };
        };
        responses: {
            /** @description The outcome. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        /** @description False if the issuer has no address for it, or refuses. */
                        revoked: boolean;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
            504: components["responses"]["Problem"];
        };
    };
    codingAuthToken: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description The handle of the sign-in. */
                    device_code: string;
                };
            };
        };
        responses: {
            /** @description The tokens of the person who has signed in. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        access_token: string;
                        /** @constant */
                        token_type: "Bearer";
                        expires_in: number;
                        /** @description Absent if the previous one stays valid. */
                        refresh_token?: string;
                        scope?: string;
                        /** @description The person's account at the vendor. */
                        account_id?: string;
                        /** @description The account's plan. */
                        plan?: string;
                    };
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            429: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
            504: components["responses"]["Problem"];
        };
    };
    codingChat: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description The user's access token. It is never logged. */
                    accessToken: string;
                    /** @description The user's account at the vendor. */
                    accountId?: string;
                    /** @description The API's request, which is sent unchanged. */
                    body: {
                        /** @constant */
                        stream: true;
                        /** @constant */
                        store: false;
                        prompt_cache_key?: string;
                    };
                };
            };
        };
        responses: {
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
            504: components["responses"]["Problem"];
            /** @description The API's response: a stream of server-sent events, or its error as JSON. */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                    "application/json": unknown;
                };
            };
        };
    };
    health: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The service is healthy. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        status: string;
                        version?: string;
                        uptimeMs?: number;
                        service?: string;
                    };
                };
            };
            500: components["responses"]["Problem"];
            /** @description The store cannot be read or written. */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        status: string;
                        reason?: string;
                    };
                };
            };
        };
    };
    listJobs: {
        parameters: {
            query?: {
                /** @description Only jobs of this user. */
                userId?: string;
                /** @description Only jobs of this company. */
                companyId?: string;
                /** @description Only jobs of this agent. */
                agentId?: string;
                /** @description Only jobs that call this tool. */
                toolId?: string;
                /** @description Only jobs of this assignment. */
                assignmentId?: string;
                /** @description Only jobs in this state. `open` means all states that are not final; `discarded` includes periodic jobs with dead letters. */
                state?: "scheduled" | "running" | "retryable" | "paused" | "completed" | "discarded" | "cancelled" | "open";
                /** @description `asc`: the oldest first; `desc`: the newest first. */
                order?: "asc" | "desc";
                /** @description Maximum number of items. A page may have fewer items even if it is not the last one. */
                limit?: number;
                /** @description The `nextCursor` of the previous page. */
                cursor?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description One page of jobs. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobList"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    createJob: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["CreateJobRequest"] & components["schemas"]["ScheduleSpec"];
            };
        };
        responses: {
            /** @description The job that an earlier request with the same idempotencyKey created. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScheduledJob2"];
                };
            };
            /** @description The job was created. */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScheduledJob2"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    cancelJobs: {
        parameters: {
            query?: {
                /** @description Only jobs of this user. */
                userId?: string;
                /** @description Only jobs of this company. */
                companyId?: string;
                /** @description Only jobs of this agent. */
                agentId?: string;
                /** @description Only jobs that call this tool. */
                toolId?: string;
                /** @description Only jobs of this assignment. */
                assignmentId?: string;
                /** @description Only jobs in this state. `open` means all states that are not final; `discarded` includes periodic jobs with dead letters. */
                state?: "scheduled" | "running" | "retryable" | "paused" | "completed" | "discarded" | "cancelled" | "open";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The number of cancelled jobs. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CancelledJobs"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    countJobs: {
        parameters: {
            query?: {
                /** @description Only jobs of this user. */
                userId?: string;
                /** @description Only jobs of this company. */
                companyId?: string;
                /** @description Only jobs of this agent. */
                agentId?: string;
                /** @description Only jobs that call this tool. */
                toolId?: string;
                /** @description Only jobs of this assignment. */
                assignmentId?: string;
                /** @description Only jobs in this state. `open` means all states that are not final; `discarded` includes periodic jobs with dead letters. */
                state?: "scheduled" | "running" | "retryable" | "paused" | "completed" | "discarded" | "cancelled" | "open";
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The number of jobs. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobCount"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    getJob: {
        parameters: {
            query?: {
                /** @description Only jobs of this user. */
                userId?: string;
                /** @description Only jobs of this company. */
                companyId?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The job. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobDetails"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    cancelJob: {
        parameters: {
            query?: {
                /** @description Only jobs of this user. */
                userId?: string;
                /** @description Only jobs of this company. */
                companyId?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The job's state. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobStatus2"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    pauseJob: {
        parameters: {
            query?: {
                /** @description Only jobs of this user. */
                userId?: string;
                /** @description Only jobs of this company. */
                companyId?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The job's state. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobStatus2"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    redriveJob: {
        parameters: {
            query?: {
                /** @description Only jobs of this user. */
                userId?: string;
                /** @description Only jobs of this company. */
                companyId?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The job's state. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobStatus2"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    rescheduleJob: {
        parameters: {
            query?: {
                /** @description Only jobs of this user. */
                userId?: string;
                /** @description Only jobs of this company. */
                companyId?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ScheduleSpec"];
            };
        };
        responses: {
            /** @description The job's state with its new due time. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobStatus2"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    resumeJob: {
        parameters: {
            query?: {
                /** @description Only jobs of this user. */
                userId?: string;
                /** @description Only jobs of this company. */
                companyId?: string;
            };
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The job's state. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobStatus2"];
                };
            };
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            404: components["responses"]["Problem"];
            409: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
        };
    };
    live: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The process is alive. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        status: string;
                    };
                };
            };
            500: components["responses"]["Problem"];
        };
    };
    messengerCall: {
        parameters: {
            query?: never;
            header?: {
                /** @description Passed on to the API. */
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description The bot's token. It is never logged. */
                    token: string;
                    /** @example sendMessage */
                    method: string;
                    /** @description The method's parameters, as in the bot API. */
                    params?: Record<string, unknown>;
                };
            };
        };
        responses: {
            400: components["responses"]["Problem"];
            401: components["responses"]["Problem"];
            403: components["responses"]["Problem"];
            408: components["responses"]["Problem"];
            413: components["responses"]["Problem"];
            415: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
            502: components["responses"]["Problem"];
            503: components["responses"]["Problem"];
            504: components["responses"]["Problem"];
            /** @description The bot API's response, with its status, body and content type. */
            default: {
                headers: {
                    /** @description `parameters.retry_after` of an error response. */
                    "Retry-After"?: number;
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    metrics: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The metrics. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/openmetrics-text": string;
                };
            };
            500: components["responses"]["Problem"];
        };
    };
    ready: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The service is ready. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        status: string;
                    };
                };
            };
            500: components["responses"]["Problem"];
            /** @description The service is draining, or its store cannot be written. */
            503: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        status: string;
                        reason?: string;
                    };
                };
            };
        };
    };
    createChatCompletion: {
        parameters: {
            query?: never;
            header?: {
                /** @description Thread in which the run is stored. */
                "X-Thread-Id"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    /** @description Id of the agent. */
                    model: string;
                    /** @description The conversation, oldest first. */
                    messages: Record<string, unknown>[];
                    stream?: boolean;
                    stream_options?: {
                        include_usage?: boolean;
                    };
                    /** @description Functions that the client executes. */
                    tools?: Record<string, unknown>[];
                    tool_choice?: unknown;
                    /** @description Limit on each answer of the agent's model, in tokens, below that of the agent. */
                    max_completion_tokens?: number | null;
                    /** @description Limit on each answer of the agent's model, in tokens, below that of the agent. */
                    max_tokens?: number | null;
                    /** @description True stores the run in a thread, false does not. */
                    store?: boolean;
                    /** @constant */
                    n?: 1;
                };
            };
        };
        responses: {
            /** @description The chat completion, or its chunks as server-sent events that end with `[DONE]`. */
            200: {
                headers: {
                    /** @description Id of the run. */
                    "X-Agent-Run-Id"?: string;
                    /** @description Thread in which the run is stored. */
                    "X-Thread-Id"?: string;
                    /** @description `waiting`, if the run waits for a person's approval. Streams do not have it. */
                    "X-Agent-Run-State"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        id: string;
                        /** @constant */
                        object: "chat.completion";
                        created: number;
                        model: string;
                        choices: {
                            index: number;
                            message: {
                                /** @constant */
                                role: "assistant";
                                content: string | null;
                                tool_calls?: Record<string, unknown>[];
                            };
                            /** @enum {unknown} */
                            finish_reason: "stop" | "length" | "tool_calls" | "content_filter";
                        }[];
                        usage?: {
                            prompt_tokens: number;
                            completion_tokens: number;
                            total_tokens: number;
                        };
                    };
                    "text/event-stream": string;
                };
            };
            400: components["responses"]["ApiError"];
            401: components["responses"]["ApiError"];
            403: components["responses"]["ApiError"];
            404: components["responses"]["ApiError"];
            408: components["responses"]["ApiError"];
            409: components["responses"]["ApiError"];
            410: components["responses"]["ApiError"];
            413: components["responses"]["ApiError"];
            415: components["responses"]["ApiError"];
            422: components["responses"]["ApiError"];
            429: components["responses"]["ApiError"];
            500: components["responses"]["ApiError"];
            501: components["responses"]["ApiError"];
            502: components["responses"]["ApiError"];
            503: components["responses"]["ApiError"];
            504: components["responses"]["ApiError"];
        };
    };
    listModels: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The agents. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModelList"];
                };
            };
            400: components["responses"]["ApiError"];
            401: components["responses"]["ApiError"];
            403: components["responses"]["ApiError"];
            429: components["responses"]["ApiError"];
            500: components["responses"]["ApiError"];
            503: components["responses"]["ApiError"];
        };
    };
    getModel: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The agent. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModelObject"];
                };
            };
            400: components["responses"]["ApiError"];
            401: components["responses"]["ApiError"];
            403: components["responses"]["ApiError"];
            404: components["responses"]["ApiError"];
            429: components["responses"]["ApiError"];
            500: components["responses"]["ApiError"];
            503: components["responses"]["ApiError"];
        };
    };
    getWidget: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The script. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/javascript": string;
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            404: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
        };
    };
    getWidgetModule: {
        parameters: {
            query?: never;
            header?: {
                /** @description RFC 9110, section 13.1. */
                "If-None-Match"?: string;
            };
            path: {
                path: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The script. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/javascript": string;
                };
            };
            /** @description Not modified: the client has the current version. */
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            404: components["responses"]["Problem"];
            500: components["responses"]["Problem"];
        };
    };
}
